package inquiry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/bucket/lease"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// A letter unknown reports a call that the api may have processed. If the api offers an inquiry, the owner of the job's
// partition asks the api, and acts on the answer:
//
//	processed      the job's result is stored, with what the api said, and then the letter is deleted
//	not processed  the job is handed in again, as by a redrive, and then the letter is deleted; its bill is forgotten
//	anything else  the letter stays
//
// No letter ends twice. There is only one right to end letters (deadletter.Right), which redrives and purges need, too.
// The owner acquires it, and checks it before each write. If the owner dies in between, the next inquiry repeats the
// missing steps: it finds a stored result before it asks the api, and a redrive finds out whether the job was
// submitted. "Not processed" counts only if the letter is old enough, because an api may process late. The owner asks
// the api only at the url to which the call was made: after a change of the url another api would answer.

// ReconcileEnd is what became of a letter after an inquiry: a closed set.
type ReconcileEnd string

// The ends.
const (
	EndedDone       ReconcileEnd = "done"       // found processed: its result is stored
	EndedRedriven   ReconcileEnd = "redriven"   // found not processed: submitted again
	EndedOverflowed ReconcileEnd = "overflowed" // found not processed, and refused again: another letter
	EndedGone       ReconcileEnd = "gone"       // it has ended in another way
	EndedStays      ReconcileEnd = "stays"      // it stays, and Why says why
)

// Reconciled is the result of an inquiry about one letter.
type Reconciled struct {
	Seq     uint64           `json:"seq"`
	API     string           `json:"api"`
	Key     string           `json:"key"`
	Job     string           `json:"job"`
	End     ReconcileEnd     `json:"end"`
	Finding httpcall.Finding `json:"finding,omitempty"` // "": the api was not asked
	Why     string           `json:"why,omitempty"`
	next    time.Time        // when weir asks again by itself; zero if it does not
}

// askedLetter is a letter during an inquiry.
type askedLetter struct {
	deadletter.Kept
	w       *Inquirer
	part    *lane.Owned
	terms   *lane.Terms
	browser *deadletter.Browser
	right   *deadletter.Right
	queued  string // stream of the letter's job
	at      uint64 // sequence of the job in that stream
	taken   bucket.Micros
	slot    bucket.Micros // the latest time of the inquiry's slot, which this replica's own limits count
	traces  ledger.Traces
	finding httpcall.Finding
	detail  string
}

// Inquirer asks an api about letters. It is safe for concurrent use.
type Inquirer struct {
	*lane.Lane
	store        bucket.Store
	checkpoint   func()
	settle       func(ctx context.Context, uses []bucket.Use)
	tat          func(key string) bucket.Micros
	redriveTerms func(api string) (deadletter.Terms, bool)
	held         func(p *lane.Owned, hold schedule.HoldChange, news []schedule.HoldChange)
	asking       inquiryPace
}

// Options are the settings of an Inquirer. All are required.
type Options struct {
	Store      bucket.Store
	Checkpoint func()                                             // makes the limits' state be stored at once
	Settle     func(ctx context.Context, uses []bucket.Use)       // reports the ends of grants to the store
	TAT        func(key string) bucket.Micros                     // a key's theoretical arrival time, as far as it is known; called under the lane's lock
	Terms      func(api string) (terms deadletter.Terms, ok bool) // for a redrive
	// Held reports news of holds, and stores a hold of the api in a partition.
	Held func(p *lane.Owned, hold schedule.HoldChange, news []schedule.HoldChange)
}

// New returns an inquirer of a lane's api.
func New(l *lane.Lane, o Options) *Inquirer {
	return &Inquirer{Lane: l, store: o.Store, checkpoint: o.Checkpoint, settle: o.Settle, tat: o.TAT, redriveTerms: o.Terms, held: o.Held}
}

// callsSince reads the calls that a redrive asks for from the ledger.
func (w *Inquirer) callsSince(ctx context.Context, q deadletter.CallsQuery, take func(deadletter.Trace)) (uint64, error) {
	return ledger.ReadSince(ctx, w.Env.JS, q, take)
}

// mayEnd reports whether the letter's end may be written.
func (l *askedLetter) mayEnd() bool { return l.part.MayCall() && l.right.Valid() }

// about returns the letter's job as an inquiry names it.
func (l *askedLetter) about() httpcall.Asked {
	return httpcall.Asked{Job: l.JobID, Key: l.Key, Body: l.Body}
}

// calls returns how many calls of the job were made, as far as is known.
func (l *askedLetter) calls() int {
	if l.traces.Record != nil {
		return l.traces.Record.Call
	}
	return max(1, l.Attempts)
}

// asker says what started an inquiry.
type asker int

const (
	anOperator asker = iota
	weirItself       // at times that weir chooses, a limited number of times
)

// Reconcile asks an api what became of one letter's job, and ends the letter if the answer tells. It may wait for the
// inquiry's rate, then for a slot, and then for the answer, which takes at most the api's timeout. If the api cannot be
// asked now, the letter stays. Reconcile fails with ErrNotOwner if another replica owns the job's partition.
func (w *Inquirer) Reconcile(ctx context.Context, seq uint64) (Reconciled, error) {
	return w.reconcile(ctx, seq, anOperator)
}

func (w *Inquirer) reconcile(ctx context.Context, seq uint64, who asker) (Reconciled, error) {
	b, err := deadletter.OpenBrowser(ctx, w.Env.JS)
	if err != nil {
		return Reconciled{}, err
	}
	l, out, err := w.readAsked(ctx, b, seq)
	if err != nil || out.End != "" {
		return out, err
	}
	if l.traces, err = l.tracesOf(ctx); err != nil {
		return out, err
	}
	if early, due := l.notYet(who, &out); early {
		out.End, out.next = EndedStays, due
		return out, nil
	}
	if err := l.closed(); err != nil {
		return out.stays(err)
	}
	if err := w.asking.wait(ctx, l.rate()); err != nil {
		return out.stays(err)
	}
	if l.right, err = deadletter.TakeRight(ctx, w.Env.Conn, w.Env.Control, deadletter.Inquirer(w.Env.Instance)); err != nil {
		return out, err
	}
	defer l.right.Give()
	if _, err := b.Get(ctx, seq); errors.Is(err, deadletter.ErrNoLetter) { // ended before this inquiry had the right
		out.End = EndedGone
		return out, nil
	} else if err != nil {
		return out, err
	}
	if l.traces, err = l.tracesOf(ctx); err != nil {
		return out, err
	}
	return l.end(ctx, out)
}

// stays turns a *noSlotError into the end EndedStays, with the reason and the time of the next try. It returns any
// other error unchanged.
func (r Reconciled) stays(err error) (Reconciled, error) {
	var none *noSlotError
	if !errors.As(err, &none) {
		return r, err
	}
	r.End, r.Why, r.next = EndedStays, none.why, none.until
	if none.until.IsZero() {
		r.next = time.Now().Add(time.Minute)
		return r, nil
	}
	r.Why += " until " + none.until.UTC().Format(time.RFC3339)
	return r, nil
}

// readAsked reads a letter and checks that this replica can ask about it. If not, it returns either an error, or what
// becomes of the letter (Reconciled.End).
func (w *Inquirer) readAsked(ctx context.Context, b *deadletter.Browser, seq uint64) (*askedLetter, Reconciled, error) {
	out := Reconciled{Seq: seq, API: w.Name}
	k, err := b.Get(ctx, seq)
	switch {
	case errors.Is(err, deadletter.ErrNoLetter):
		out.End = EndedGone
		return nil, out, nil
	case err != nil:
		return nil, out, err
	case k.API != w.Name || !k.CanBeAsked():
		out.End, out.Why = EndedStays, "it is no letter unknown of this api, nor of a cancelled operation"
		return nil, out, nil
	}
	out.Key, out.Job = k.Key, k.JobID
	l := &askedLetter{w: w, Kept: k, browser: b}
	var ok bool
	if l.queued, l.at, l.taken, ok = ledger.ParseOrigin(k.Origin); !ok {
		out.End, out.Why = EndedStays, "it does not say where its job was queued"
		return nil, out, nil
	}
	w.Mu.Lock()
	l.terms = w.Terms
	for _, p := range w.Partitions {
		if p != nil && !p.Closing && p.Bucket.Name() == l.queued {
			l.part = p
		}
	}
	w.Mu.Unlock()
	switch {
	case l.Operation == "" && l.terms.API.Inquiry == nil:
		return nil, out, ErrNoInquiry
	case l.Operation != "" && l.terms.Polls == nil:
		return nil, out, ErrNoOperation
	case l.part == nil:
		return nil, out, lane.ErrNotOwner
	case l.Operation != "":
		return l, out, nil
	case k.Call != nil && k.Call.Target != "" && k.Call.Target != l.terms.API.Target():
		out.End, out.Why = EndedStays, "the api's url is another than when it was called"
		return nil, out, nil
	}
	if err := l.terms.API.Inquiry.CanAsk(l.about()); err != nil {
		out.End, out.Why = EndedStays, "it cannot be asked about: "+err.Error()
		return nil, out, nil
	}
	return l, out, nil
}

// tracesOf returns what the ledger and the results know of a letter's job, and how often an inquiry was made about it.
func (l *askedLetter) tracesOf(ctx context.Context) (ledger.Traces, error) {
	of := ledger.Job{API: l.w.Name, Key: l.Key, ID: l.JobID, Stream: l.queued, Seq: l.at, Accepted: l.taken}
	return ledger.LookUp(ctx, l.w.Env.JS, of, l.Stored.Add(-l.w.Env.Leeway))
}

// notYet reports whether it is too early for weir itself to ask about a letter, and when the inquiry is due. The first
// inquiry is due when the answer "not processed" would count. Each later wait is twice the one before. The ledger has
// the inquiries that were made before a restart. An operator may ask at any time.
func (l *askedLetter) notYet(who asker, out *Reconciled) (early bool, due time.Time) {
	q := l.terms.API.Inquiry
	n := l.traces.Inquiries
	if who == anOperator || l.traces.Result != 0 {
		return false, due
	}
	if l.Operation != "" {
		out.Why = "its operation was polled until it was given up: an operator may ask about it"
		return true, due
	}
	if l.Call == nil || l.Call.Target == "" {
		out.Why = "it does not say where it was called: an operator may ask about it"
		return true, due
	}
	if n >= q.Tries {
		out.Why = fmt.Sprintf("asked %d times in vain", n)
		return true, due
	}
	due = l.Stored.Add(ageAt(q.After, n))
	return l.w.wall().Before(due), due
}

// wall returns the time of the wall clock, to compare with the times at which the server stored letters.
func (w *Inquirer) wall() time.Time { return (w.Now() + w.Env.Ahead()).Time() }

// longestRest is the longest time between two inquiries about a letter.
const longestRest = 7 * 24 * time.Hour

// ageAt returns how old a letter is when weir itself asks about it after n inquiries. The first wait is after. Each
// further wait is twice the one before, and at most longestRest.
func ageAt(after time.Duration, n int) (age time.Duration) {
	wait := min(after, longestRest)
	for range n + 1 {
		age += wait
		wait = min(2*wait, longestRest)
	}
	return age
}

// end asks the api and ends the letter as the answer says. The caller must hold the right to end letters.
func (l *askedLetter) end(ctx context.Context, out Reconciled) (Reconciled, error) {
	if l.traces.Result != 0 { // an earlier inquiry stored the result, and then its owner died
		out.End, out.Finding, out.Why = EndedDone, httpcall.Processed, "its result stands already"
		return out, l.browser.Delete(context.WithoutCancel(ctx), l.Seq)
	}
	r, err := l.inquire(ctx)
	if err != nil {
		return out.stays(err)
	}
	fault.Pass(fault.CallAnswered)
	out.Finding, out.Why = l.finding, l.detail
	age := l.w.wall().Sub(l.Stored)
	switch {
	case l.finding == httpcall.Processed:
		out.End = EndedDone
		err = l.keepFound(ctx, r)
	case l.finding == httpcall.OperationFailed || l.finding == httpcall.OperationRunning || l.finding == httpcall.StillUnknown:
		out.End = EndedStays
	case age < l.terms.API.Inquiry.After:
		out.End, out.Why = EndedStays, fmt.Sprintf("%s; that is not believed before the letter is %s old: the api may process late",
			l.detail, l.terms.API.Inquiry.After)
	default:
		out.End, err = l.handIn(ctx, &out)
	}
	if err == nil {
		ingest.TraceOf(l.Header).Log(l.w.Log).Info("an api was asked about a letter", "job_id", l.JobID, "key", l.Key, "seq", l.Seq, "outcome", out.End, "reason", out.Why)
	}
	return out, err
}

// keepFound stores the result of a job that was found processed, sends it to the job's reply subject, and deletes the
// letter.
func (l *askedLetter) keepFound(ctx context.Context, r httpcall.Response) error {
	msg := l.foundResult(r)
	for {
		err := l.w.Env.Results.WriteWhile(l.mayEnd, msg).Err
		if err == nil {
			break
		}
		if !errors.Is(err, stream.ErrTooLarge) || !ledger.Lessen(msg) {
			return fmt.Errorf("found processed, but its result could not be stored: %w", err)
		}
	}
	fault.Pass(fault.ResultStored)
	if l.ReplyTo != "" {
		l.w.Env.Reply(l.ReplyTo, msg)
	}
	l.w.Metrics.Finished.Count(ledger.Done)
	return l.browser.Delete(context.WithoutCancel(ctx), l.Seq)
}

// foundResult builds the result of a job that was found processed. Its body is the api's answer to the inquiry.
func (l *askedLetter) foundResult(r httpcall.Response) *nats.Msg {
	if l.Operation != "" {
		r = l.terms.API.Operation.ResultOf(r)
	}
	price, called := ledger.Money(l.terms.API.Price), time.Time{}
	if l.Call != nil {
		called = l.Call.Started
	}
	switch c := l.traces.Record; {
	case c == nil:
	case c.Operation != nil:
		price, called = ledger.Money(c.Operation.Price), c.Operation.Started
	default:
		price, called = c.Price, c.Started
	}
	h := nats.Header{
		ingest.HeaderMsgID: {ledger.FoundPrefix + l.Origin},
		ingest.HeaderJobID: {l.JobID}, ingest.HeaderAPI: {l.w.Name}, ingest.HeaderKey: {ingest.HeaderText(l.Key)},
		ledger.HeaderOutcome: {ledger.Done}, ledger.HeaderStatus: {strconv.Itoa(r.Status)}, ledger.HeaderFoundBy: {ledger.FoundByInquiry},
		ledger.HeaderAttempts: {strconv.Itoa(l.Attempts)}, ledger.HeaderCalls: {strconv.Itoa(l.calls())}, ledger.HeaderPrice: {price},
		ledger.HeaderAcceptedAt: {ledger.Stamp(l.taken.Time())}, ledger.HeaderFinishedAt: {ledger.Stamp(r.Ended)},
	}
	if l.Redrives > 0 {
		h[ingest.HeaderRedrives] = []string{strconv.Itoa(l.Redrives)}
	}
	ingest.TraceOf(l.Header).AddTo(h)
	if !called.IsZero() {
		h[ledger.HeaderCalledAt] = []string{ledger.Stamp(called)}
	}
	if v := ledger.Clip(r.Header.Get("Content-Type"), ledger.MaxContentType); v != "" {
		h["Content-Type"] = []string{v}
	}
	msg := &nats.Msg{Subject: ledger.ResultSubject(l.w.Name, l.Key), Header: h, Data: r.Body}
	if most := max(0, min(int(l.w.Env.Conn.MaxPayload())-ledger.HeaderRoom, int(l.terms.API.MaxResult))); r.More || len(msg.Data) > most {
		msg.Data = msg.Data[:min(len(msg.Data), most)]
		h[ledger.HeaderBody] = []string{ledger.BodyCut}
	}
	return msg
}

// redriveRate is the rate for handing in one letter. One letter needs no pace.
var redriveRate = bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}

// handIn submits the letter's job again, because it was found not processed.
func (l *askedLetter) handIn(ctx context.Context, out *Reconciled) (ReconcileEnd, error) {
	scope, err := l.browser.Scope(ctx, deadletter.Selection{Seqs: []uint64{l.Seq}})
	if err != nil {
		return EndedStays, err
	}
	redrive := deadletter.NewRedrive(scope, deadletter.RedriveOptions{
		Conn: l.w.Env.Conn, Browser: l.browser, Terms: l.w.redriveTerms, Calls: l.w.callsSince, Rate: redriveRate,
		Unknown: deadletter.FoundUnprocessed, Valid: l.mayEnd, Progress: func(*deadletter.Tally) {},
	})
	if _, err := redrive.Plan(ctx); err != nil {
		return EndedStays, err
	}
	did, err := redrive.Run(ctx)
	switch {
	case err != nil:
		return EndedStays, err
	case did.Redriven+did.Known+did.Settled > 0:
		return EndedRedriven, nil
	case did.Overflowed+did.Refused > 0:
		out.Why += "; handed in again it was refused, which is another letter"
		return EndedOverflowed, nil
	}
	out.Why += fmt.Sprintf("; it was not handed in again: %v", slices.Sorted(maps.Keys(did.Skipped)))
	return EndedStays, nil
}

// Bounds of the inquiries that weir makes without an operator.
const (
	mostAsked    = 10_000           // how many of an api's letters it looks at: the newest
	longestLook  = 10 * time.Second // longest time between two looks at the letters
	shortestLook = 250 * time.Millisecond
)

// InquireByItself asks about the api's letters when they are due, until ctx ends. It does so only while the
// configuration asks for it.
func (w *Inquirer) InquireByItself(ctx context.Context) {
	next := map[uint64]time.Time{} // when each letter is due; zero for letters that never are
	var last *lane.Terms
	for {
		w.Mu.Lock()
		present := w.Terms
		w.Mu.Unlock()
		if present != last {
			last, next = present, map[uint64]time.Time{}
		}
		q := present.API.Inquiry
		look := longestLook
		if q != nil && q.Auto {
			look = min(max(q.After/2, shortestLook), longestLook)
			var err error
			if next, err = w.askDue(ctx, next); err != nil && ctx.Err() == nil {
				w.Log.Warn("could not ask the api about its unknown letters; the next round asks again", "err", err)
			}
		}
		if !stream.Sleep(ctx, look) {
			return
		}
	}
}

// askDue looks through the api's letters, and asks about those that are due. It returns when each letter is due next.
func (w *Inquirer) askDue(ctx context.Context, before map[uint64]time.Time) (map[uint64]time.Time, error) {
	b, err := deadletter.OpenBrowser(ctx, w.Env.JS)
	if err != nil {
		return before, err
	}
	var seqs []uint64
	err = b.Newest(ctx, deadletter.Filter{API: w.Name, Reason: deadletter.Unknown}, mostAsked, func(k deadletter.Kept) error {
		seqs = append(seqs, k.Seq)
		return nil
	})
	if err != nil {
		return before, err
	}
	after := make(map[uint64]time.Time, len(seqs))
	for _, seq := range slices.Backward(seqs) { // the oldest first
		due, known := before[seq]
		if known && (due.IsZero() || w.wall().Before(due)) {
			after[seq] = due
			continue
		}
		out, askErr := w.reconcile(ctx, seq, weirItself)
		var held *lease.HeldError
		switch {
		case ctx.Err() != nil:
			return after, askErr
		case errors.Is(askErr, lane.ErrNotOwner), errors.As(askErr, &held):
			// Next time this replica may own the partition, or the right may be free.
		case errors.Is(askErr, ErrNoOperation):
			after[seq] = time.Time{} // until the terms change
		case askErr != nil:
			err = askErr
		case out.End == EndedStays && out.Finding == "":
			after[seq] = out.next
		}
	}
	return after, err
}

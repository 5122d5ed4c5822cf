package deadletter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/ingest"
)

// A producer that retries at once is refused many times for one job. So refusals of the same job for the same reason
// share one letter, as long as weir would know the job's id, and the letter counts them. Two jobs are the same if the
// producer chose the same id, key, headers and body for both. The headers of traces do not matter, because they differ
// with each try. A job without an id of its producer's always counts as new.
//
// The first refusal stores the letter. A later one is answered with that letter's number, after the stream has
// confirmed that the letter still exists. If it was redriven or purged, the next refusal stores a new letter. When the
// count has grown tenfold, the Writer sends an event and replaces the letter by one with the new count. It stores the
// new letter, which names the old one, before it deletes the old one. If the process dies in between, the next start
// deletes the old one (healReplaced).
//
// The stream joins the refusals of several replicas, and those before and after a restart: the letter's message id is
// made from the job, so for one hour the stream answers a second letter with the first one's number. Each replica
// counts its own refusals, and continues from the count in the letter. A letter whose event could not be stored stays,
// because another replica may have stored the event and named the letter to the producer. If no replica has, the next
// refusal finds the letter and stores the event.

// Bounds of what the Writer remembers about refusals.
const (
	mostRefusals    = 65536            // jobs; beyond it the oldest is forgotten, and the stream finds its letter again
	mostLives       = 16               // letters of a job with numbered message ids; later ids use the time
	refusalCheckers = 32               // jobs whose letters are checked at once
	waitingChecks   = 1024             // jobs whose letters wait for a check
	refusalsKnown   = 10 * time.Minute // the default of Options.Dedupe
	lookBackLetters = 20_000           // the letters that a start searches for replaced ones
)

// refusedJob is a job that was refused, and its letter. The lock of refusals guards its fields.
type refusedJob struct {
	id      refusalID
	first   time.Time
	count   int    // refusals
	seq     uint64 // of the letter; 0 until one is stored
	written int    // the count in the stored letter
	life    int    // the number in the message id of the next letter
	busy    bool   // its letter is being stored or checked
	waiting []refusalWaiting
}

// refusalWaiting is a refusal that is answered when the job's letter is stored or found.
type refusalWaiting struct {
	letter *Letter
	event  func(seq uint64, refusals int) Event
	done   func(seq uint64, err error)
	bytes  int // of the job
}

// refusals holds the recently refused jobs. It is safe for concurrent use.
type refusals struct {
	dedupe   func() time.Duration
	checks   chan *refusedJob
	maxBytes int // of all waiting refusals

	mu      sync.Mutex // guards what follows
	jobs    map[refusalID]*refusedJob
	order   []*refusedJob // by the time of their first refusal
	waiting int           // waiting refusals
	bytes   int           // of the waiting refusals
	ended   bool
}

func newRefusals(dedupe func() time.Duration, maxBytes int) *refusals {
	if dedupe == nil {
		dedupe = func() time.Duration { return refusalsKnown }
	}
	return &refusals{
		dedupe: dedupe, checks: make(chan *refusedJob, waitingChecks), maxBytes: maxBytes, jobs: map[refusalID]*refusedJob{},
	}
}

// refusalStep is what must happen next to a refusal.
type refusalStep int

const (
	storeOwn   refusalStep = iota // the caller must store a letter for this refusal alone
	storeFirst                    // the caller must store the job's letter
	waitCheck                     // the caller need do nothing: a check of the job's letter will answer the refusal
	turnAway                      // the caller must fail the refusal: too many, or too many bytes of them, wait
)

// enter adds a refusal. It returns the job only if the caller must store the job's letter.
func (x *refusals) enter(id refusalID, w refusalWaiting, now time.Time) (*refusedJob, refusalStep) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forgetLocked(now)
	j := x.jobs[id]
	switch {
	case x.ended, j == nil && len(x.jobs) >= mostRefusals:
		return nil, storeOwn
	case j == nil:
		j = &refusedJob{id: id, first: now, count: 1, busy: true}
		x.jobs[id], x.order = j, append(x.order, j)
		return j, storeFirst
	case x.waiting >= maxWaiting, x.bytes > 0 && x.bytes+w.bytes > x.maxBytes:
		return nil, turnAway
	}
	if !j.busy {
		select {
		case x.checks <- j:
			j.busy = true
		default:
			return nil, storeOwn
		}
	}
	j.count++
	x.waitLocked(j, len(j.waiting), w)
	return nil, waitCheck
}

// waitLocked inserts a refusal at a place among those that wait for a job's letter.
func (x *refusals) waitLocked(j *refusedJob, at int, w refusalWaiting) {
	j.waiting = slices.Insert(j.waiting, at, w)
	x.waiting++
	x.bytes += w.bytes
}

// takeLocked removes and returns the first n refusals that wait for a job's letter.
func (x *refusals) takeLocked(j *refusedJob, n int) []refusalWaiting {
	taken := slices.Clone(j.waiting[:n])
	if j.waiting = slices.Delete(j.waiting, 0, n); len(j.waiting) == 0 {
		j.waiting = nil
	}
	x.waiting -= n
	for i := range taken {
		x.bytes -= taken[i].bytes
	}
	return taken
}

// forgetLocked drops jobs whose first refusal is longer ago than dedupe, and the oldest jobs if there are too many. It
// stops at the first job whose letter is being stored or checked.
func (x *refusals) forgetLocked(now time.Time) {
	n, dedupe := 0, x.dedupe()
	for n < len(x.order) && (now.Sub(x.order[n].first) > dedupe || len(x.jobs) > mostRefusals-1) && !x.order[n].busy {
		delete(x.jobs, x.order[n].id)
		n++
	}
	if x.order = x.order[n:]; len(x.order) == 0 {
		x.order = nil
	}
}

// stood answers all refusals that wait for a job's letter, with its sequence or an error. After an error it drops the
// job.
func (x *refusals) stood(j *refusedJob, seq uint64, err error) {
	x.mu.Lock()
	waiting := x.takeLocked(j, len(j.waiting))
	j.busy, j.seq = false, seq
	if err != nil && x.jobs[j.id] == j {
		delete(x.jobs, j.id)
		x.order = slices.DeleteFunc(x.order, func(other *refusedJob) bool { return other == j })
	}
	x.mu.Unlock()
	for _, w := range waiting {
		w.done(seq, err)
	}
}

// refuseOnce stores the letter of a refused job, or counts the refusal in the job's letter. It returns false if the
// caller must store a letter for this refusal alone.
func (o *Writer) refuseOnce(l *Letter, id refusalID, w refusalWaiting) bool {
	j, step := o.refusals.enter(id, w, time.Now())
	switch step {
	case storeFirst:
		o.storeRefused(j, l, w)
	case turnAway:
		w.done(0, fmt.Errorf("dead letter: %w", stream.ErrWriterFull))
	case waitCheck, storeOwn:
	}
	return step != storeOwn
}

// storeRefused stores a job's letter under its next message id.
func (o *Writer) storeRefused(j *refusedJob, l *Letter, w refusalWaiting) {
	l.refusedID = j.id.msgID(j.life)
	o.letters.Begin(l.Message(), func(answer stream.Answer) {
		switch {
		case answer.Err != nil:
			err := fmt.Errorf("dead letter: %w", answer.Err)
			w.done(0, err)
			o.refusals.stood(j, 0, err)
			return
		case answer.Duplicate: // by another replica, or before a restart: checked later, where blocking is allowed
			o.refusals.adopt(j, answer.Seq, w)
			return
		}
		j.life++
		j.written = max(1, l.Refusals)
		o.announce(l, answer.Seq, w, func(err error) {
			w.done(answer.Seq, err)
			if err != nil || !o.refusals.lookAgain(j, answer.Seq) {
				o.refusals.stood(j, answer.Seq, err)
			}
		})
	})
}

// lookAgain starts a check of a letter that was just stored if more refusals came meanwhile, because the count may have
// grown tenfold. It returns false if there is no check.
func (x *refusals) lookAgain(j *refusedJob, seq uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	j.seq = seq
	if len(j.waiting) == 0 || x.ended {
		return false
	}
	select {
	case x.checks <- j:
		return true
	default:
		return false
	}
}

// adopt starts a check of a letter that the stream already had.
func (x *refusals) adopt(j *refusedJob, seq uint64, w refusalWaiting) {
	x.mu.Lock()
	j.seq = seq
	x.waitLocked(j, 0, w)
	ended := x.ended
	x.mu.Unlock()
	if ended {
		x.stood(j, 0, fmt.Errorf("dead letter: %w", stream.ErrStopping))
		return
	}
	select {
	case x.checks <- j:
	default:
		x.stood(j, 0, fmt.Errorf("dead letter: %w", stream.ErrWriterFull))
	}
}

// announce sends the event and the notice of a refused job's letter, and calls done once.
func (o *Writer) announce(l *Letter, seq uint64, w refusalWaiting, done func(err error)) {
	e := w.event(seq, l.Refusals)
	e.ID = l.refusedID // if this replica dies first, another one sends the event under the same id
	o.Send(e, func(err error) {
		if err == nil {
			o.buried.WithLabelValues(ingest.Token(l.API), string(l.Reason)).Inc()
			o.notify(l)
		}
		done(err)
	})
}

// checkRefusals checks the letters of jobs that were refused again, until ctx ends.
func (o *Writer) checkRefusals(ctx context.Context) error {
	for {
		select {
		case j := <-o.refusals.checks:
			o.checkRefused(ctx, j)
		case <-ctx.Done():
			o.refusals.end(context.Cause(ctx))
			return nil
		}
	}
}

// end fails all waiting refusals with cause.
func (x *refusals) end(cause error) {
	x.mu.Lock()
	x.ended = true
	jobs := slices.Clone(x.order)
	x.mu.Unlock()
	for _, j := range jobs {
		x.stood(j, 0, fmt.Errorf("not stored: %w", cause))
	}
}

// checkRefused looks for a job's letter. If the letter exists, its number answers the waiting refusals. If not, the
// first of these refusals becomes a letter. It blocks until the stream answers.
func (o *Writer) checkRefused(ctx context.Context, j *refusedJob) {
	o.refusals.mu.Lock()
	seq, asked, adopted := j.seq, len(j.waiting), j.written == 0
	if asked == 0 { // all were answered when the Writer ended
		o.refusals.mu.Unlock()
		return
	}
	newest := j.waiting[asked-1]
	o.refusals.mu.Unlock()
	k, err := (&Browser{js: o.js}).Get(ctx, seq)
	gone := errors.Is(err, ErrNoLetter) || err == nil && (!j.id.of(k.Header) || time.Since(k.Stored) > o.refusals.dedupe())
	switch {
	case err != nil && !gone:
		o.refusals.stood(j, 0, fmt.Errorf("the letter of a job that was refused before: %w", err))
		return
	case gone:
		o.buryAgain(j)
		return
	}
	before := max(1, k.Refusals)
	if adopted {
		told, err := o.toldBefore(&k, newest)
		if err != nil {
			o.refusals.stood(j, 0, err)
			return
		}
		if !told && k.Refusals <= 1 {
			before = 0 // the letter is this refusal's own, sent twice, or that of a refusal without an answer
		}
	}
	o.refusals.mu.Lock()
	switch {
	case adopted:
		j.count += before
	case k.Refusals > j.written: // another replica has counted too
		j.count = max(j.count, k.Refusals+asked)
	}
	j.written, j.life = max(1, k.Refusals), max(j.life, lifeOf(k.Header)+1)
	count, grown := j.count, tens(j.count) > tens(j.written)
	o.refusals.mu.Unlock()
	if grown {
		seq = o.replaceRefused(ctx, j, &k, count, newest)
	}
	o.answerAsked(j, seq, asked)
}

// toldBefore sends the event of a letter that the stream already had, and reports whether the event was already stored.
// The stream of events knows the event's id for at least as long as the stream of letters knows the letter's. It blocks
// until the event is stored.
func (o *Writer) toldBefore(k *Kept, w refusalWaiting) (before bool, err error) {
	e := w.event(k.Seq, k.Refusals)
	e.ID = k.Header.Get(ingest.HeaderMsgID)
	switch a := o.events.Write(e.message(time.Now())); {
	case a.Err != nil:
		return false, fmt.Errorf("event %s: %w", e.Type, a.Err)
	case a.Duplicate:
		return true, nil
	}
	o.buried.WithLabelValues(ingest.Token(w.letter.API), string(w.letter.Reason)).Inc()
	o.notify(w.letter)
	return false, nil
}

// answerAsked answers the refusals that came before the check of the letter: asked is their number, and they are the
// first that wait. If more wait, it starts another check.
func (o *Writer) answerAsked(j *refusedJob, seq uint64, asked int) {
	x := o.refusals
	x.mu.Lock()
	j.seq = seq
	if len(j.waiting) <= asked {
		x.mu.Unlock()
		x.stood(j, seq, nil)
		return
	}
	answered := x.takeLocked(j, asked)
	x.mu.Unlock()
	for _, w := range answered {
		w.done(seq, nil)
	}
	select {
	case x.checks <- j:
	default:
		x.stood(j, 0, fmt.Errorf("dead letter: %w", stream.ErrWriterFull))
	}
}

// buryAgain makes a letter of the first waiting refusal, because the job's letter is gone.
func (o *Writer) buryAgain(j *refusedJob) {
	x := o.refusals
	x.mu.Lock()
	if len(j.waiting) == 0 { // all were answered when the Writer ended
		x.mu.Unlock()
		return
	}
	w := x.takeLocked(j, 1)[0]
	j.count, j.written, j.first = 1+len(j.waiting), 0, time.Now()
	if j.seq, j.life = 0, j.life+1; j.life > mostLives {
		j.life = int(time.Now().UnixMilli()) // an id that no other letter has
	}
	x.mu.Unlock()
	o.storeRefused(j, w.letter, w)
}

// replaceRefused stores a job's letter again with its new count and deletes the old one. It returns the sequence of the
// letter that remains.
func (o *Writer) replaceRefused(ctx context.Context, j *refusedJob, old *Kept, count int, w refusalWaiting) uint64 {
	l := *w.letter
	l.Refusals, l.Replaces, l.Accepted = count, old.Seq, old.Accepted
	l.refusedID = j.id.msgID(j.life)
	told := o.letters.Write(l.Message())
	if told.Err != nil || told.Duplicate {
		o.logOf(&l).Warn("could not write a letter again with its new number of refusals; the letter stays unchanged", "err", told.Err)
		return old.Seq
	}
	e := w.event(told.Seq, count)
	e.ID = l.refusedID
	if a := o.events.Write(e.message(time.Now())); a.Err != nil {
		o.logOf(&l).Warn("the event of a job that is refused again and again could not be stored", "err", a.Err)
	}
	o.refusals.mu.Lock()
	j.life++
	j.written = count
	o.refusals.mu.Unlock()
	o.deleteReplaced(ctx, old.Seq)
	return told.Seq
}

func (o *Writer) deleteReplaced(ctx context.Context, seq uint64) {
	b, err := OpenBrowser(ctx, o.js)
	if err == nil {
		err = b.Delete(ctx, seq)
	}
	if err != nil {
		o.log.Warn("a letter that was written again is listed twice until the next start", "seq", seq, "err", err)
	}
}

// healReplaced deletes letters that were replaced, but not deleted because the process died.
func (o *Writer) healReplaced(ctx context.Context) error {
	b, err := OpenBrowser(ctx, o.js)
	if err != nil {
		o.log.Warn("did not check the letters for duplicates", "err", err)
		return nil
	}
	looked, replaced := 0, []Kept{}
	err = b.Newest(ctx, Filter{Since: time.Now().Add(-lettersKnown)}, lookBackLetters, func(k Kept) error {
		if looked++; k.Replaces > 0 && k.Replaces < k.Seq {
			replaced = append(replaced, k)
		}
		return nil
	})
	for i := range replaced {
		old, getErr := b.Get(ctx, replaced[i].Replaces)
		if getErr == nil && sameRefusal(old.Header, replaced[i].Header) {
			err = errors.Join(err, b.Delete(ctx, old.Seq))
		}
	}
	if err != nil && ctx.Err() == nil {
		o.log.Warn("did not check all letters for duplicates", "count", looked, "err", err)
	}
	return nil
}

// tens returns how often a count has grown tenfold.
func tens(n int) (times int) {
	for ; n >= 10; n /= 10 {
		times++
	}
	return times
}

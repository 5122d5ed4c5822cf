package inquiry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// An inquiry asks an api what became of a call whose outcome is unknown. It is a request to the api like any other. It
// takes a slot of its key's bucket, and one unit of every limit that all keys share, but no money. None is made while
// the key or the api is paused or held. Inquiries also have a rate of their own. The ledger has a record of each
// inquiry, so that limits are counted correctly after a restart.

// Bounds of an inquiry.
const (
	slotAhead    = time.Second      // how far ahead a reserved slot may be, as for jobs
	slotWait     = 30 * time.Second // the longest wait for a slot
	leastAskWait = 5 * time.Millisecond
)

// inquiryPace spaces an api's inquiries by their rate. It is safe for concurrent use. The zero value lets one inquiry
// go at once.
type inquiryPace struct {
	mu   sync.Mutex // guards what follows
	next time.Time
}

// wait blocks until it is the caller's turn, or ctx ends.
func (p *inquiryPace) wait(ctx context.Context, rate bucket.Rate) error {
	p.mu.Lock()
	now := time.Now()
	at := now
	if p.next.After(at) {
		at = p.next
	}
	if at.Sub(now) > slotWait {
		p.mu.Unlock()
		return &noSlotError{"inquiry.rate lets no other one through", at}
	}
	p.next = at.Add(rate.Per / time.Duration(rate.Count))
	p.mu.Unlock()
	if !stream.Sleep(ctx, time.Until(at)) {
		return context.Cause(ctx)
	}
	return nil
}

// noSlotError says that the limits leave no room for an inquiry now.
type noSlotError struct {
	why   string
	until time.Time // zero if unknown
}

func (e *noSlotError) Error() string { return e.why }

// closed returns an error that says why no inquiry about the letter's key may be made now, nil if one may be made.
func (l *askedLetter) closed() error {
	l.w.Mu.Lock()
	now := l.w.Now()
	until := l.w.Sched.At(now).ClosedUntil(l.Key)
	l.w.Mu.Unlock()
	switch until {
	case 0:
		return nil
	case schedule.Never:
		return &noSlotError{why: "an operator has paused it"}
	}
	return &noSlotError{why: "calls are held", until: time.Now().Add(now.Until(until))}
}

// awaitSlot waits for a slot of the letter's key, and returns at the slot's time. latest is the time until which the
// inquiry may leave. awaitSlot fails with a *noSlotError if the limits leave no room within slotWait.
func (l *askedLetter) awaitSlot(ctx context.Context) (use bucket.Use, latest time.Time, err error) {
	w, t, key := l.w, l.terms, l.Key
	ctx, cancel := context.WithTimeout(ctx, slotWait)
	defer cancel()
	costs := make([]int64, len(t.API.Rules.Shared))
	for i := range costs {
		if t.API.Rules.Shared[i].Budget == nil {
			costs[i] = 1
		}
	}
	for {
		if err := l.closed(); err != nil {
			return use, latest, err
		}
		if err := l.awaitReplica(ctx); err != nil {
			return use, latest, err
		}
		w.Mu.Lock()
		ask := bucket.Ask{Key: key, Limits: *w.Sched.Policy().LimitsOf(key), Costs: costs, Want: 1, Horizon: slotAhead, Floor: w.tat(key)}
		w.Mu.Unlock()
		answers, err := w.store.Reserve(ctx, []bucket.Ask{ask})
		if err != nil {
			l.endReplica(false)
			return use, latest, fmt.Errorf("no slot is available: %w", err)
		}
		came, a := time.Now(), answers[0]
		if len(a.Grants) == 0 {
			l.endReplica(false)
			if a.Wait.Limit == bucket.OwnCheckpoint {
				w.checkpoint()
			}
			wait := max(leastAskWait, a.Now.Until(a.Wait.Until))
			if far := came.Add(wait); wait > slotWait || a.Wait.Never {
				return use, latest, &noSlotError{fmt.Sprintf("limit %s has no room for it", a.Wait.Limit), far}
			}
			if !stream.Sleep(ctx, wait) {
				return use, latest, &noSlotError{why: fmt.Sprintf("limit %s had no room for it within %s", a.Wait.Limit, slotWait)}
			}
			continue
		}
		use = bucket.Use{Key: key, Grant: a.Grants[0], Costs: costs}
		ahead := max(0, a.Now.Until(use.Grant.At))
		at := came.Add(ahead)
		latest = at.Add(schedule.Lateness(&t.API.Rules))
		counted := len(t.API.Rules.Replica) == 0 || w.Now().Add(ahead) <= l.slot // false if the store answered late
		if counted && stream.Sleep(ctx, time.Until(at)) && !time.Now().After(latest) {
			return use, latest, nil
		}
		use.Returned = true
		l.endReplica(false)
		w.settle(context.WithoutCancel(ctx), []bucket.Use{use})
		if ctx.Err() != nil {
			return use, latest, &noSlotError{why: "no slot came in time"}
		}
	}
}

// awaitReplica waits until this replica's own limits let the inquiry pass, and counts the inquiry in them. It fails
// with a *noSlotError if they do not let it pass within slotWait.
func (l *askedLetter) awaitReplica(ctx context.Context) error {
	for {
		l.w.Mu.Lock()
		now := l.w.Now()
		l.slot = now.Add(slotAhead)
		at, limit := l.w.Sched.TakeReplica(now, l.slot)
		l.w.Mu.Unlock()
		wait := now.Until(at)
		switch {
		case at == 0:
			return nil
		case wait > slotWait:
			return &noSlotError{fmt.Sprintf("limit %s has no room for it", limit), time.Now().Add(wait)}
		case !stream.Sleep(ctx, max(wait, leastAskWait)):
			return &noSlotError{why: fmt.Sprintf("limit %s had no room for it within %s", limit, slotWait)}
		}
	}
}

// endReplica tells this replica's own limits that the inquiry has ended. sent says whether the inquiry was sent.
func (l *askedLetter) endReplica(sent bool) {
	l.w.Mu.Lock()
	more := l.w.Sched.EndReplica(l.slot, sent)
	l.w.Mu.Unlock()
	if more {
		l.w.WakeUp()
	}
}

// ask waits for a slot and asks the api in it. If the inquiry is too late for its slot, or is not sent for another
// reason, ask gives the slot back.
func (l *askedLetter) ask(ctx context.Context) (r httpcall.Response, use bucket.Use, err error) {
	if err := l.terms.Call.Conns.Acquire(ctx); err != nil {
		return r, use, fmt.Errorf("the api could not be reached: %w", httpcall.ForLetters(err))
	}
	defer l.terms.Call.Conns.Release()
	use, latest, err := l.awaitSlot(ctx)
	if err != nil {
		return r, use, err
	}
	r = l.terms.Call.Inquire(ctx, l.about(), httpcall.Hooks{MayWrite: func() bool { return l.mayEnd() && !time.Now().After(latest) }})
	use.Returned = !r.Sent
	l.endReplica(r.Sent)
	l.w.settle(context.WithoutCancel(ctx), []bucket.Use{use})
	return r, use, nil
}

// lateTries bounds how many slots an inquiry takes because it was too late for the one before.
const lateTries = 20

// inquire asks about a letter's job in a slot, and stores the inquiry's record in the ledger. It blocks until the
// record is stored.
func (l *askedLetter) inquire(ctx context.Context) (httpcall.Response, error) {
	if l.Operation != "" {
		return l.inquireOperation(ctx)
	}
	r, use, err := l.ask(ctx)
	for try := 1; err == nil && r.Barred && l.mayEnd() && try < lateTries; try++ {
		r, use, err = l.ask(ctx)
	}
	switch {
	case err != nil:
		return httpcall.Response{}, err
	case !r.Sent:
		return r, fmt.Errorf("the api could not be asked: %w", r.Err)
	}
	l.finding, l.detail = l.terms.API.Inquiry.Answers.Read(r)
	l.detail = "asked, " + l.detail
	l.w.Env.Metrics.Inquiries.WithLabelValues(l.w.Name, string(l.finding)).Inc()
	l.heedPushback(r)
	if err = l.w.Env.Record(l.part.MayCall, l.inquiryRecord(r, use)).Err; err != nil {
		return r, fmt.Errorf("the record of the inquiry could not be stored: %w", err)
	}
	return r, nil
}

// inquireOperation asks about the operation that the call of a letter's job began. Like any poll it takes no slot. It
// stores a record of the inquiry in the ledger, and blocks until that record is stored.
func (l *askedLetter) inquireOperation(ctx context.Context) (r httpcall.Response, err error) {
	r, l.finding, l.detail = l.terms.Polls.Poll(ctx, l.Operation, httpcall.Hooks{MayWrite: l.mayEnd})
	if !r.Sent {
		return r, fmt.Errorf("the api could not be asked: %w", r.Err)
	}
	l.detail = "asked, " + l.detail
	if l.finding == httpcall.OperationDone {
		l.finding = httpcall.Processed // the record and the end are as for a call that was processed
	}
	l.w.Env.Metrics.Polls.WithLabelValues(l.w.Name, l.pollOutcome(r)).Inc()
	use := bucket.Use{Grant: bucket.Grant{At: l.w.Now()}, Costs: make([]int64, len(l.terms.API.Rules.Shared))}
	c := l.inquiryRecord(r, use)
	c.Polled = true
	if err := l.w.Env.Record(l.part.MayCall, c).Err; err != nil {
		return r, fmt.Errorf("the record of the inquiry could not be stored: %w", err)
	}
	return r, nil
}

// pollOutcome returns what came of a poll, in the words of the metrics.
func (l *askedLetter) pollOutcome(r httpcall.Response) string {
	switch {
	case l.finding == httpcall.Processed:
		return string(httpcall.OperationDone)
	case l.finding != httpcall.StillUnknown:
		return string(l.finding)
	case r.Status == 0:
		return "no_answer"
	}
	return "unclear"
}

// rate returns how fast the api may be asked about letters like this one.
func (l *askedLetter) rate() bucket.Rate {
	if l.Operation != "" {
		return l.terms.API.Operation.Rate
	}
	return l.terms.API.Inquiry.Rate
}

// heedPushback holds calls if the api pushed an inquiry back.
func (l *askedLetter) heedPushback(r httpcall.Response) {
	if wait := httpcall.PushedBackFor(r, time.Now()); wait > 0 {
		hold := schedule.HoldChange{Why: fmt.Sprintf("the api pushed an inquiry back with %d", r.Status)}
		var news []schedule.HoldChange
		l.w.Update(func(s *schedule.Schedule) {
			now := l.w.Now()
			hold.Until = now.Add(wait)
			news = s.Holds.HoldLonger(hold.Until, hold.Why, now)
		})
		l.w.held(l.part, hold, news)
	}
}

// inquiryRecord builds the ledger's record of an inquiry.
func (l *askedLetter) inquiryRecord(r httpcall.Response, use bucket.Use) *ledger.Record {
	l.w.Mu.Lock()
	tat := max(use.Grant.TAT, l.w.Sched.At(l.w.Now()).KnownTAT(l.Key))
	if q := l.w.Sched.Queues.Find(l.Key); q != nil {
		tat = max(tat, l.w.Sched.At(l.w.Now()).Floor(q)) // calls of the key that ended before may have later slots
	}
	l.w.Mu.Unlock()
	ahead := l.w.Env.Ahead()
	c := &ledger.Record{
		API: l.w.Name, Key: l.Key, Job: l.JobID, Dedupe: l.JobID, Stream: l.queued, Seq: l.at, Call: l.calls(), Attempt: l.Attempts, Redrives: l.Redrives,
		From: deadletter.RedrivenFrom(l.Header, l.Redrives), Trace: ingest.TraceOf(l.Header).Parent,
		Accepted: l.taken.Time().UTC(), Planned: (use.Grant.At + ahead).Time(), Started: r.Started.UTC(), Ended: r.Ended.UTC(), Sent: true, Status: r.Status,
		Outcome: ledger.Asked, Inquiry: string(l.finding), Final: true, Detail: ledger.Clip(l.detail, ledger.MaxDetail),
		Price: ledger.Money(0), Billed: billedBy(l.finding), TAT: tat + ahead, Limits: l.terms.API.Rules.Names(), Costs: use.Costs,
		Instance: l.w.Env.Instance,
	}
	switch {
	case l.traces.Record != nil:
		c.Dedupe = l.traces.Record.Dedupe
	case l.Redrives > 0:
		c.Dedupe = ingest.RedriveID(l.JobID, l.Redrives)
	}
	return c
}

func billedBy(f httpcall.Finding) deadletter.Billed {
	switch f {
	case httpcall.Processed:
		return deadletter.BilledYes
	case httpcall.NotProcessed:
		return deadletter.NotBilled
	case httpcall.OperationFailed, httpcall.OperationRunning, httpcall.OperationDone:
		return deadletter.BilledYes // the call was accepted
	case httpcall.StillUnknown:
	}
	return deadletter.BilledUnknown
}

// ErrNoOperation says that an api's configuration has no operation any more.
var ErrNoOperation = errors.New("the api's configuration does not say how to poll its operations any more: put operation back")

// ErrNoInquiry says that an api's configuration has no inquiry.
var ErrNoInquiry = errors.New("the api's configuration does not say how to ask the api about a call: configure inquiry (weir help redrive)")

package dispatcher

import (
	"context"
	"time"

	"weir/bucket"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// paceLocked makes a queue go on at its key's pace.
func (w *apiWorker) paceLocked(q *schedule.KeyQueue, now bucket.Micros) {
	w.leaveLocked(q)
	if w.clock == schedule.OtherClock {
		q.Remind(max(w.d.tail.TAT(w.name, q.Key), w.restoredTATLocked(q.Limits)))
		return
	}
	q.GoOnFrom(w.floor(q, now))
}

// floor is the earliest theoretical arrival time of a key that was found with jobs at the start. What the ledger knows
// is certain. Beyond it a call may have been running at the crash: the intents tell. Then the key waits one interval with an
// empty bucket, and so it does where there may be a call without an intent.
func (w *apiWorker) floor(q *schedule.KeyQueue, now bucket.Micros) bucket.Micros {
	known := max(w.recordedLocked(q.Key, q.Limits), min(q.Noted, now.Add(w.s.DrainTime(q.Limits))))
	if partitionOf(q).Clean || !q.Unsure && !w.untoldLocked(q) {
		return known
	}
	return max(known, now.Add(w.s.DrainTime(q.Limits))) // a slot after the last that the ledger knows may have been used
}

// recall is when the key may be called at the earliest, as far as calls from before the start say. The ledger's tail,
// read at the start, is enough for most; a key that may owe more than the time it reaches back is looked up when it is first
// to be called. What this process knows already is no answer where others may have owned the key's
// partition meanwhile. A store that is elsewhere has not forgotten anything with this process.
func (w *apiWorker) recall(ctx context.Context, q *schedule.KeyQueue) (bucket.Micros, error) {
	w.mu.Lock()
	known := max(q.TAT, w.knownLocked(q.Key))
	drain := w.s.DrainTime(q.Limits)
	looked := q.LookedUp || known != 0 && w.d.owner == nil && w.restoredTATLocked(q.Limits) == 0
	w.mu.Unlock()
	if w.clock == schedule.OtherClock || looked || w.d.tail.Covers(w.name, w.now().Add(-drain)) {
		return 0, nil
	}
	tat, err := w.lastTAT(ctx, q.Key, known, drain)
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q.LookedUp = true
	bound := w.since
	if w.d.owner != nil {
		bound = w.now()
	}
	tat = min(tat, bound.Add(drain)) // recorded at another rate, perhaps
	if tat > q.TAT {
		q.GoOnFrom(tat)
	}
	return w.s.NextSlot(q, w.now()), nil
}

// notRecorded is the earliest theoretical arrival time of a key of which the ledger holds no record: 0 where it never was
// called, and otherwise what a call just before the ledger's beginning would have come to.
func (w *apiWorker) notRecorded(ctx context.Context, drain time.Duration) (bucket.Micros, error) {
	reached, err := ledger.ExtentOf(ctx, w.d.opts.JetStream)
	if err != nil || reached.Begins.IsZero() {
		return 0, err
	}
	begun := w.now().Add(ledger.ServerSkew - reached.Asked.Sub(reached.Begins))
	if free := begun.Add(drain); free > w.now() {
		w.mu.Lock()
		told := w.shortTold
		w.shortTold = true
		w.mu.Unlock()
		if !told {
			w.log.Warn("the ledger begins so late that slow keys which it does not know may have been called before: they wait as if they had; "+
				"a larger store keeps more of it", "begins", reached.Begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when it was never called. Where the
// record is this replica's own, and known is what it knows itself, that stands: exact, and not later each time it is asked.
// drain is how long its bucket takes to empty.
func (w *apiWorker) lastTAT(ctx context.Context, key string, known bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c, err := ledger.Newest(ctx, w.d.opts.JetStream, w.name, key)
	if err != nil {
		return 0, err
	}
	if c == nil {
		return w.notRecorded(ctx, drain)
	}
	switch {
	case w.d.owner == nil:
		return c.TAT, nil
	case known != 0 && c.Instance == w.d.opts.Instance:
		return known, nil
	}
	reached, err := ledger.ExtentOf(ctx, w.d.opts.JetStream)
	if err != nil {
		return 0, err
	}
	return w.inherit(c, c.Stored, reached.Asked), nil
}

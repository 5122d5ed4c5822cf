package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// What a new owner knows of the pace of keys.
//
// The ledger has a key's theoretical arrival time by the clock of the replica that made the call. Where the store is in
// Redis that is the clock of all. Otherwise it is another machine's wall clock, which nobody compares with ours. Two
// things are known without it: the bucket was in debt until TAT-Planned after the call's slot, and the record was stored
// after the slot. So the debt ends at the latest so long after the ledger was read; and also so long after the record
// was stored, by the clock of the servers, which may disagree a little when another of them has become the leader.

// pace is what is known of calls of an api's keys that were made before: by former processes, by other replicas, before a backup. It says from
// when on a key may be called.
type pace struct {
	api      string
	instance string
	shared   bool // others may have owned a key's partition meanwhile
	clock    schedule.StoreClock
	now      func() bucket.Micros
	tail     *ledger.Tail
	js       jetstream.JetStream
	restored *Restoration
	log      *slog.Logger
	// stored is the theoretical arrival time that the store knows of a key, 0 if none.
	stored func(key string) bucket.Micros

	mu    *sync.Mutex // the worker's: it guards what follows
	s     *schedule.Schedule
	since bucket.Micros // when the present terms came into force
	// shortTold says that it has been told that the ledger begins too late for slow keys.
	shortTold bool
}

func newPace(w *apiWorker, stored func(key string) bucket.Micros) *pace {
	o := &w.d.opts
	return &pace{
		api: w.name, instance: o.Instance, shared: w.d.owner != nil, clock: w.clock, now: o.Now, tail: w.d.tail, js: o.JetStream, restored: o.Restored, log: w.log,
		stored: stored, mu: &w.mu, since: o.Now(),
	}
}

// goOnLocked makes a queue that was found go on at its key's pace. unsure says that a call of it may have been running when its owner before
// ended.
func (p *pace) goOnLocked(q *schedule.KeyQueue, unsure bool) {
	if p.clock == schedule.OtherClock {
		q.Remind(max(p.tail.TAT(p.api, q.Key), p.restoredLocked(q.Limits)))
		return
	}
	q.GoOnFrom(p.floorLocked(q, unsure))
}

// floorLocked is the earliest theoretical arrival time of a key that was found with jobs at the start. What the ledger knows
// is certain. Beyond it a call may have been running at the crash. Then the key waits one interval with an empty bucket.
func (p *pace) floorLocked(q *schedule.KeyQueue, unsure bool) bucket.Micros {
	now := p.now()
	known := max(p.recordedLocked(q.Key, q.Limits), min(q.Noted, now.Add(p.s.DrainTime(q.Limits))))
	if !unsure {
		return known
	}
	return max(known, now.Add(p.s.DrainTime(q.Limits))) // a slot after the last that the ledger knows may have been used
}

// recall is when the key may be called at the earliest, as far as calls from before the start say. The ledger's tail,
// read at the start, is enough for most; a key that may owe more than the time it reaches back is looked up when it is first
// to be called. What this process knows already is no answer where others may have owned the key's
// partition meanwhile. A store that is elsewhere has not forgotten anything with this process.
func (p *pace) recall(ctx context.Context, q *schedule.KeyQueue) (bucket.Micros, error) {
	p.mu.Lock()
	known := max(q.TAT, p.knownLocked(q.Key))
	drain := p.s.DrainTime(q.Limits)
	looked := q.LookedUp || known != 0 && !p.shared && p.restoredLocked(q.Limits) == 0
	p.mu.Unlock()
	if p.clock == schedule.OtherClock || looked || p.tail.Covers(p.api, p.now().Add(-drain)) {
		return 0, nil
	}
	tat, err := p.lastTAT(ctx, q.Key, known, drain)
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	q.LookedUp = true
	bound := p.since
	if p.shared {
		bound = p.now()
	}
	tat = min(tat, bound.Add(drain)) // recorded at another rate, perhaps
	if tat > q.TAT {
		q.GoOnFrom(tat)
	}
	return p.s.NextSlot(q, p.now()), nil
}

// notRecorded is the earliest theoretical arrival time of a key of which the ledger holds no record: 0 where it never was
// called, and otherwise what a call just before the ledger's beginning would have come to.
func (p *pace) notRecorded(ctx context.Context, drain time.Duration) (bucket.Micros, error) {
	reached, err := ledger.ExtentOf(ctx, p.js)
	if err != nil || reached.Begins.IsZero() {
		return 0, err
	}
	begun := p.now().Add(ledger.ServerSkew - reached.Asked.Sub(reached.Begins))
	if free := begun.Add(drain); free > p.now() {
		p.mu.Lock()
		told := p.shortTold
		p.shortTold = true
		p.mu.Unlock()
		if !told {
			p.log.Warn("the ledger begins so late that slow keys which it does not know may have been called before: they wait as if they had; "+
				"a larger store keeps more of it", "begins", reached.Begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when it was never called. Where the
// record is this replica's own, and known is what it knows itself, that stands: exact, and not later each time it is asked. Where nobody can
// read the record the call may have been made just now.
// drain is how long its bucket takes to empty.
func (p *pace) lastTAT(ctx context.Context, key string, known bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c, err := ledger.Newest(ctx, p.js, p.api, key)
	if errors.Is(err, ledger.ErrUnreadable) {
		p.log.Error("when a key was called last cannot be read: it waits as if that were now", "key", key, "err", err)
		return p.now().Add(drain), nil
	}
	if err != nil {
		return 0, err
	}
	if c == nil {
		return p.notRecorded(ctx, drain)
	}
	switch {
	case !p.shared:
		return c.TAT, nil
	case known != 0 && c.Instance == p.instance:
		return known, nil
	}
	reached, err := ledger.ExtentOf(ctx, p.js)
	if err != nil {
		return 0, err
	}
	return p.inherit(c, c.Stored, reached.Asked), nil
}

// inherit is a record's theoretical arrival time by this worker's store, not earlier than it was meant. began is the time
// at the server, just before now.
func (p *pace) inherit(c *ledger.Record, stored, began time.Time) bucket.Micros {
	if p.clock == schedule.OtherClock {
		return c.TAT
	}
	slot := c.Planned
	if slot.IsZero() {
		slot = c.Started
	}
	debt := bucket.MicrosOf(slot).Until(c.TAT)
	if debt <= 0 {
		return 0
	}
	now := p.now()
	return min(now.Add(debt), now.Add(debt-began.Sub(stored)+ledger.ServerSkew))
}

// knownLocked is what the store or the ledger knows of a key's theoretical arrival time, 0 if nothing. Both may know it in
// intervals of a rate that holds no more; see rebind.
func (p *pace) knownLocked(key string) bucket.Micros {
	if p.clock == schedule.OtherClock {
		return max(p.stored(key), p.tail.TAT(p.api, key), p.restoredLocked(p.s.LimitsOf(key)))
	}
	limits := p.s.LimitsOf(key)
	tat := p.recordedLocked(key, limits)
	if stored := p.stored(key); stored > tat {
		tat = max(tat, min(stored, p.now().Add(schedule.LeastAhead+p.s.DrainTime(limits))))
	}
	return tat
}

// recordedLocked is what the ledger of former runs knows.
func (p *pace) recordedLocked(key string, limits *bucket.KeyLimits) bucket.Micros {
	tat := p.tail.TAT(p.api, key)
	if fault.Planted(fault.LimiterOpen) {
		return 0
	}
	return max(min(tat, max(p.since, p.tail.ReadAt(p.api)).Add(p.s.DrainTime(limits))), p.restoredLocked(limits))
}

// restoredLocked is the theoretical arrival time of a key that may have been called until the streams were restored, 0 where that matters
// no more.
func (p *pace) restoredLocked(limits *bucket.KeyLimits) bucket.Micros {
	r := p.restored
	if r == nil || r.Counted && p.clock == schedule.OtherClock {
		return 0
	}
	tat := min(bucket.MicrosOf(r.At), p.since).Add(p.s.DrainTime(limits)) // by a clock that is behind now, perhaps
	if tat <= p.now() {
		return 0
	}
	return tat
}

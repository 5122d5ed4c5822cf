package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go/jetstream"
)

// A new owner derives the pace of each key from what former owners recorded.
//
// The ledger has a key's theoretical arrival time by the clock of the replica that made the call. If the store is in
// Redis, all replicas use its clock. Otherwise the time is by another machine's wall clock, which is not compared with
// ours. Two things are known without it: the bucket was in debt for TAT-Planned after the call's slot, and the record
// was stored after the slot. So the debt ends at the latest that long after the ledger was read. It also ends that long
// after the record was stored, by the servers' clock, which may differ a little between leaders.

// pace collects what is known of earlier calls of an api's keys: by former processes, by other replicas, before a
// backup. It decides when a key may be called again.
type pace struct {
	*lane
	instance string
	shared   bool // other replicas may have owned a key's partition meanwhile
	tail     *ledger.Tail
	js       jetstream.JetStream
	restored *Restoration
	changed  func(StreamChange) // see Options.Changed
	// stored returns the theoretical arrival time that the store knows of a key, 0 if none.
	stored func(key string) bucket.Micros

	since bucket.Micros // when the present terms came into force; the lane's lock guards it and what follows
	// shortTold says that a warning was logged: the ledger begins too late for slow keys.
	shortTold bool
	// unreadableTold says that a warning was logged: a key's newest record cannot be read.
	unreadableTold bool
}

func newPace(l *lane, stored func(key string) bucket.Micros) *pace {
	e := l.env
	return &pace{
		lane: l, instance: e.instance, shared: e.shared, tail: e.tail, js: e.js, restored: e.restored, changed: e.changed, stored: stored, since: l.now(),
	}
}

// goOnLocked lets a found queue continue at its key's pace. unsure says that one of its calls may have been running
// when the former owner ended.
func (p *pace) goOnLocked(q *schedule.KeyQueue, unsure bool) {
	if p.clock == schedule.OtherClock {
		q.Remind(max(p.tail.TAT(p.name, q.Key), p.restoredLocked(q.Limits)))
		return
	}
	q.GoOnFrom(p.floorLocked(q, unsure))
}

// floorLocked returns the earliest theoretical arrival time of a key that was found with jobs. A time from the ledger
// is certain. If unsure, another call may have been running at the crash: then the key's whole burst counts as used
// now, and its next call waits one interval.
func (p *pace) floorLocked(q *schedule.KeyQueue, unsure bool) bucket.Micros {
	now := p.now()
	known := max(p.recordedLocked(q.Key, q.Limits), min(q.Noted, now.Add(p.s.Policy().DrainTime(q.Limits))))
	if !unsure {
		return known
	}
	return max(known, now.Add(p.s.Policy().DrainTime(q.Limits))) // a slot after the last that the ledger knows may have been used
}

// recall returns the earliest time at which the key may be called, as far as calls from before the start say. For most
// keys the ledger's tail, read at the start, is enough. A key whose debt may be longer than the tail reaches back is
// looked up before its first call. This process's own knowledge is not enough if other replicas may have owned the
// key's partition meanwhile. A store on another machine remembers everything itself.
func (p *pace) recall(ctx context.Context, q *schedule.KeyQueue) (bucket.Micros, error) {
	p.mu.Lock()
	known := max(q.TAT, p.knownLocked(q.Key))
	drain := p.s.Policy().DrainTime(q.Limits)
	gap := p.tail.Gap(p.name)
	looked := q.LookedUp || known != 0 && !p.shared && p.restoredLocked(q.Limits) == 0 && !gap
	p.mu.Unlock()
	if p.clock == schedule.OtherClock || looked || !gap && p.tail.Covers(p.name, p.now().Add(-drain)) {
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
	tat = min(tat, bound.Add(drain)) // it may be recorded at another rate
	if tat > q.TAT {
		q.GoOnFrom(tat)
	}
	return p.s.Policy().NextSlot(q, p.now()), nil
}

// notRecorded returns the earliest theoretical arrival time of a key without a record in the ledger. It is 0 if such a
// key was never called or has no debt any more. Otherwise it is the time after a call made just before the ledger
// begins.
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
			p.log.Warn("the ledger begins so late that slow keys may have been called before it; such keys wait as if they had; "+
				"with a larger store the ledger reaches further back", "begins", reached.Begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}

// lastTAT returns the theoretical arrival time in the newest record of a key, however old, or 0 if the key was never
// called. If the record is this replica's own, it returns known, this replica's own value, which is exact and the same
// at each call. If the record is unreadable, the call counts as made just now. drain is how long the key's bucket takes
// to empty.
func (p *pace) lastTAT(ctx context.Context, key string, known bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c, err := ledger.Newest(ctx, p.js, p.name, key)
	if errors.Is(err, ledger.ErrUnreadable) {
		p.log.Error("cannot read when a key was last called: it waits as if it were called now", "key", key, "err", err)
		p.tellUnreadable(key)
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

// tellUnreadable reports a key whose newest record is damaged, once for all keys.
func (p *pace) tellUnreadable(key string) {
	p.mu.Lock()
	told := p.unreadableTold
	p.unreadableTold = true
	p.mu.Unlock()
	if told || p.changed == nil {
		return
	}
	p.changed(StreamChange{Stream: ledger.CallsStream, At: time.Now(), What: fmt.Sprintf("the record of the last call of %s/%s cannot be read, and others may not either: "+
		"such a key waits until its bucket has drained, as if it had been called now; look at the disk", p.name, ingest.Token(key))})
}

// inherit converts a record's theoretical arrival time to the clock of this worker's store, never to an earlier time
// than the record meant. began is the server's time, just before now.
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

// knownLocked returns what the store or the ledger knows of a key's theoretical arrival time, 0 if nothing. Both may
// know it in intervals of a former rate; see schedule.Schedule.Rebind.
func (p *pace) knownLocked(key string) bucket.Micros {
	if p.clock == schedule.OtherClock {
		return max(p.stored(key), p.tail.TAT(p.name, key), p.restoredLocked(p.s.Policy().LimitsOf(key)))
	}
	limits := p.s.Policy().LimitsOf(key)
	tat := p.recordedLocked(key, limits)
	if stored := p.stored(key); stored > tat {
		tat = max(tat, min(stored, p.now().Add(schedule.LeastAhead+p.s.Policy().DrainTime(limits))))
	}
	return tat
}

// recordedLocked returns what the ledger of former runs knows of a key's theoretical arrival time.
func (p *pace) recordedLocked(key string, limits *bucket.KeyLimits) bucket.Micros {
	tat := p.tail.TAT(p.name, key)
	if fault.Planted(fault.LimiterOpen) {
		return 0
	}
	return max(min(tat, max(p.since, p.tail.ReadAt(p.name)).Add(p.s.Policy().DrainTime(limits))), p.restoredLocked(limits))
}

// restoredLocked returns the theoretical arrival time of a key that may have been called until the streams were
// restored, 0 if that is past.
func (p *pace) restoredLocked(limits *bucket.KeyLimits) bucket.Micros {
	r := p.restored
	if r == nil || r.Counted && p.clock == schedule.OtherClock {
		return 0
	}
	tat := min(bucket.MicrosOf(r.At), p.since).Add(p.s.Policy().DrainTime(limits)) // At may be by a clock that is behind
	if tat <= p.now() {
		return 0
	}
	return tat
}

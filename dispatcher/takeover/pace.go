package takeover

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// A new owner derives the pace of each key from what former owners recorded.
//
// The ledger has a key's theoretical arrival time by the clock of the replica that made the call. If the store is in
// Redis, all replicas use its clock. Otherwise the time is by another machine's wall clock, which weir does not compare
// with this machine's. Two things are known without it: the bucket was in debt for TAT-Planned after the call's slot,
// and the record was stored after the slot. So the debt has ended when that much time has passed since the ledger was
// read. It has also ended when that much time has passed since the record was stored, by the servers' clock, which may
// differ a little between leaders.

// Pace collects what is known of earlier calls of an api's keys: calls of former processes, calls of other replicas,
// and calls that were made before a backup was restored. It decides when a key may be called again.
type Pace struct {
	*lane.Lane
	// Stored returns the theoretical arrival time that the store has for a key, 0 if it has none.
	Stored func(key string) bucket.Micros

	Since bucket.Micros // when the present terms came into force; the lane's lock guards it and what follows
	// shortTold says that a warning was logged: the ledger begins too late for slow keys.
	shortTold bool
	// unreadableTold says that a warning was logged: a key's newest record cannot be read.
	unreadableTold bool
}

// NewPace returns the pace of a lane's keys. stored returns the theoretical arrival time that the store has for a key.
func NewPace(l *lane.Lane, stored func(key string) bucket.Micros) *Pace {
	return &Pace{Lane: l, Stored: stored, Since: l.Now()}
}

// goOnLocked lets a found queue continue at its key's pace. unsure says that one of its calls may have been running
// when the former owner ended.
func (p *Pace) goOnLocked(q *schedule.KeyQueue, unsure bool) {
	if p.Clock == schedule.OtherClock {
		q.Remind(max(p.Env.Tail.TAT(p.Name, q.Key), p.restoredLocked(q.Limits)))
		return
	}
	q.GoOnFrom(p.floorLocked(q, unsure))
}

// floorLocked returns the least theoretical arrival time with which a found key may continue. What the ledger has is
// certain. If unsure is true, another call may have been running at the crash. The key's whole burst then counts as
// used now, and its next call waits one interval.
func (p *Pace) floorLocked(q *schedule.KeyQueue, unsure bool) bucket.Micros {
	now := p.Now()
	known := max(p.recordedLocked(q.Key, q.Limits), min(q.Noted, now.Add(p.Sched.Policy().DrainTime(q.Limits))))
	if !unsure {
		return known
	}
	// A slot after the last one in the ledger may have been used.
	return max(known, now.Add(p.Sched.Policy().DrainTime(q.Limits)))
}

// Recall returns the earliest time at which a key may be called because of calls that were made before the start, 0 if
// they do not matter. For most keys the ledger's tail is enough, which was read at the start. If a key's debt may be
// longer than the tail reaches back, Recall looks the key up before its first call. If other replicas may have owned
// the key's partition meanwhile, this process's own knowledge is not enough either. A store on another machine
// remembers everything itself.
func (p *Pace) Recall(ctx context.Context, q *schedule.KeyQueue) (bucket.Micros, error) {
	p.Mu.Lock()
	known := max(q.TAT, p.KnownLocked(q.Key))
	drain := p.Sched.Policy().DrainTime(q.Limits)
	gap := p.Env.Tail.Gap(p.Name)
	looked := q.LookedUp || known != 0 && !p.Env.Shared && p.restoredLocked(q.Limits) == 0 && !gap
	p.Mu.Unlock()
	if p.Clock == schedule.OtherClock || looked || !gap && p.Env.Tail.Covers(p.Name, p.Now().Add(-drain)) {
		return 0, nil
	}
	tat, err := p.lastTAT(ctx, q.Key, known, drain)
	if err != nil {
		return 0, err
	}
	p.Mu.Lock()
	defer p.Mu.Unlock()
	q.LookedUp = true
	bound := p.Since
	if p.Env.Shared {
		bound = p.Now()
	}
	tat = min(tat, bound.Add(drain)) // the TAT may have been computed with another rate
	if tat > q.TAT {
		q.GoOnFrom(tat)
	}
	return p.Sched.Policy().NextSlot(q, p.Now()), nil
}

// notRecorded returns the earliest theoretical arrival time of a key that has no record in the ledger. It is 0 if such
// a key was never called, or cannot have a debt any more. Otherwise it is that of a key that was called just before the
// ledger begins.
func (p *Pace) notRecorded(ctx context.Context, drain time.Duration) (bucket.Micros, error) {
	reached, err := ledger.ExtentOf(ctx, p.Env.JS)
	if err != nil || reached.Begins.IsZero() {
		return 0, err
	}
	begun := p.Now().Add(ledger.ServerSkew - reached.Asked.Sub(reached.Begins))
	if free := begun.Add(drain); free > p.Now() {
		p.Mu.Lock()
		told := p.shortTold
		p.shortTold = true
		p.Mu.Unlock()
		if !told {
			p.Log.Warn("the ledger does not reach back far enough to say when slow keys were last called; weir waits as if they were called "+
				"just before the ledger begins; with a larger store the ledger reaches further back", "begins", reached.Begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}

// lastTAT returns the theoretical arrival time in the newest record of a key, however old the record is, or 0 if the
// key was never called. If this replica wrote the record, lastTAT returns own, which is this replica's value: it is
// exact, and the same each time. If the record is unreadable, the key counts as called just now. drain is how long the
// key's bucket takes to drain.
func (p *Pace) lastTAT(ctx context.Context, key string, own bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, lane.LoadTimeout)
	defer cancel()
	c, err := ledger.Newest(ctx, p.Env.JS, p.Name, key)
	if errors.Is(err, ledger.ErrUnreadable) {
		p.Log.Error("cannot read when a key was last called: it waits as if it were called now", "key", key, "err", err)
		p.tellUnreadable(key)
		return p.Now().Add(drain), nil
	}
	if err != nil {
		return 0, err
	}
	if c == nil {
		return p.notRecorded(ctx, drain)
	}
	switch {
	case !p.Env.Shared:
		return c.TAT, nil
	case own != 0 && c.Instance == p.Env.Instance:
		return own, nil
	}
	reached, err := ledger.ExtentOf(ctx, p.Env.JS)
	if err != nil {
		return 0, err
	}
	return p.Inherit(c, c.Stored, reached.Asked), nil
}

// tellUnreadable reports a key whose newest record is damaged. It reports only the first such key.
func (p *Pace) tellUnreadable(key string) {
	p.Mu.Lock()
	told := p.unreadableTold
	p.unreadableTold = true
	p.Mu.Unlock()
	if told || p.Env.Changed == nil {
		return
	}
	p.Env.Changed(lane.StreamChange{Stream: ledger.CallsStream, At: time.Now(), What: fmt.Sprintf("the record of the last call of %s/%s cannot be read, and others may not either: "+
		"such a key waits until its bucket has drained, as if it had been called now; look at the disk", p.Name, ingest.Token(key))})
}

// Inherit converts a record's theoretical arrival time to the clock of this worker's store. The result is never earlier
// than the record meant. stored is when the server stored the record, and began is a time of the server that lies just
// before now.
func (p *Pace) Inherit(c *ledger.Record, stored, began time.Time) bucket.Micros {
	if p.Clock == schedule.OtherClock {
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
	now := p.Now()
	return min(now.Add(debt), now.Add(debt-began.Sub(stored)+ledger.ServerSkew))
}

// KnownLocked returns the theoretical arrival time that the store or the ledger has for a key, 0 if neither has one. It
// may have been computed with a former rate of the key; see schedule.Schedule.Rebind.
func (p *Pace) KnownLocked(key string) bucket.Micros {
	if p.Clock == schedule.OtherClock {
		return max(p.Stored(key), p.Env.Tail.TAT(p.Name, key), p.restoredLocked(p.Sched.Policy().LimitsOf(key)))
	}
	limits := p.Sched.Policy().LimitsOf(key)
	tat := p.recordedLocked(key, limits)
	if stored := p.Stored(key); stored > tat {
		tat = max(tat, min(stored, p.Now().Add(schedule.LeastAhead+p.Sched.Policy().DrainTime(limits))))
	}
	return tat
}

// recordedLocked returns the theoretical arrival time that former runs recorded for a key in the ledger.
func (p *Pace) recordedLocked(key string, limits *bucket.KeyLimits) bucket.Micros {
	tat := p.Env.Tail.TAT(p.Name, key)
	if fault.Planted(fault.LimiterOpen) {
		return 0
	}
	return max(min(tat, max(p.Since, p.Env.Tail.ReadAt(p.Name)).Add(p.Sched.Policy().DrainTime(limits))), p.restoredLocked(limits))
}

// restoredLocked returns the theoretical arrival time of a key on the assumption that it was called until the streams
// were restored, 0 if that time is past.
func (p *Pace) restoredLocked(limits *bucket.KeyLimits) bucket.Micros {
	r := p.Env.Restored
	if r == nil || r.Counted && p.Clock == schedule.OtherClock {
		return 0
	}
	// r.At may come from a clock that is behind.
	tat := min(bucket.MicrosOf(r.At), p.Since).Add(p.Sched.Policy().DrainTime(limits))
	if tat <= p.Now() {
		return 0
	}
	return tat
}

package dispatcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/dispatcher/ledger"
)

// What a new owner knows of the pace of keys.
//
// The ledger has a key's theoretical arrival time by the clock of the replica that made the call. Where the store is in
// Redis that is the clock of all. Otherwise it is another machine's wall clock, which nobody compares with ours. Two
// things are known without it: the bucket was in debt until TAT-Planned after the call's slot, and the record was stored
// after the slot. So the debt ends at the latest so long after the ledger was read; and also so long after the record
// was stored, by the clock of the servers, which may disagree a little when another of them has become the leader.

// inherit is a record's theoretical arrival time by this lane's store, not earlier than it was meant. began is the time
// at the server, just before now.
func (l *lane) inherit(c *ledger.Record, stored, began time.Time) bucket.Micros {
	if l.s.clock == OtherClock {
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
	now := l.now()
	return min(now.Add(debt), now.Add(debt-began.Sub(stored)+ledger.ServerSkew))
}

// learners are takeovers that wait for the ledger to be read. Those that come while it is read for others wait for the
// next reading, which then serves them all: it must begin after the partition was claimed.
type learners struct {
	mu      sync.Mutex
	reading bool
	// toldShort says that it has been told that the ledger does not reach back as far as dedupe.
	toldShort bool
	next      *lesson
}

type lesson struct {
	parts map[lease.PartitionID]struct{}
	done  chan struct{}
	err   error
}

// learn blocks until the ledger's end has been read for a partition that this replica has just claimed. Where nobody
// else can own it, it was read at the start, or is now for an api that came later.
func (d *Dispatcher) learn(ctx context.Context, l *lane, number int) error {
	if l.learned {
		return nil
	}
	d.learners.mu.Lock()
	if d.learners.next == nil {
		d.learners.next = &lesson{parts: map[lease.PartitionID]struct{}{}, done: make(chan struct{})}
	}
	mine := d.learners.next
	mine.parts[lease.PartitionID{API: l.name, Number: number}] = struct{}{}
	reads := !d.learners.reading
	d.learners.reading = true
	d.learners.mu.Unlock()
	if reads {
		d.teach(ctx)
	}
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return fmt.Errorf("ledger: %w", context.Cause(ctx))
	}
}

// teach reads the ledger until nobody waits for it any more.
func (d *Dispatcher) teach(ctx context.Context) {
	for {
		d.learners.mu.Lock()
		now := d.learners.next
		d.learners.next = nil
		d.learners.reading = now != nil
		d.learners.mu.Unlock()
		if now == nil {
			return
		}
		now.err = d.readFor(ctx, now.parts)
		close(now.done)
	}
}

func (d *Dispatcher) readFor(ctx context.Context, parts map[lease.PartitionID]struct{}) error {
	lanes := map[string]*lane{}
	for p := range parts {
		lanes[p.API] = d.lane(p.API)
	}
	reached, err := d.tail.Read(ctx, ledger.TailOptions{
		JetStream: d.opts.JetStream, Dedupe: d.opts.Dedupe.Reach(time.Now()), Bounds: d.opts.Tail, APIs: slices.Collect(maps.Keys(lanes)), Now: d.opts.Now,
		Wants: func(api, key string) bool {
			_, ok := parts[lease.PartitionID{API: api, Number: queue.PartitionOf(key, len(lanes[api].parts))}]
			return ok
		},
		Ended: func(api string, jobs []queue.Finished) { lanes[api].queue.Recall(jobs) },
		TATOf: func(c *ledger.Record, stored, began time.Time) bucket.Micros {
			if d.owner == nil {
				return c.TAT // by this clock
			}
			return lanes[c.API].inherit(c, stored, began)
		},
	})
	if err != nil {
		return err
	}
	d.warnShort(reached)
	return nil
}

// warnShort tells where the ledger does not reach back as far as ids are to be known.
func (d *Dispatcher) warnShort(reached ledger.Extent) {
	if !reached.Begins.After(reached.Asked.Add(-d.opts.Dedupe.Known())) {
		return
	}
	d.learners.mu.Lock()
	told := d.learners.toldShort
	d.learners.toldShort = true
	d.learners.mu.Unlock()
	if !told {
		d.log.Warn("the ledger does not reach back as far as ids are to be known: a job that ended before it begins, and is sent again, may be "+
			"called again; lower dedupe, or give it a larger store", "begins", reached.Begins)
	}
}

// learnAll reads the ledger's end at the start for every partition there is, where nobody else can own any.
func (d *Dispatcher) learnAll(ctx context.Context) error {
	parts := map[lease.PartitionID]struct{}{}
	lanes := d.lanesNow()
	for _, l := range lanes {
		for number := range l.parts {
			parts[lease.PartitionID{API: l.name, Number: number}] = struct{}{}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if err := d.readFor(ctx, parts); err != nil {
		return err
	}
	for _, l := range lanes {
		l.learned = true
	}
	return nil
}

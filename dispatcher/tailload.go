package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
)

// tailLoads makes takeovers wait for a reading of the ledger. The reading must begin after the takeover's partition was
// claimed. So takeovers that begin during a reading wait for the next one, which serves them all.
type tailLoads struct {
	*lane.Env
	opts   *Options
	worker func(api string) *apiWorker

	mu      sync.Mutex // guards what follows
	reading bool
	// toldShort says that a warning was logged: the ledger does not reach back as far as dedupe.
	toldShort bool
	next      *tailLoad
}

type tailLoad struct {
	parts map[lease.PartitionID]struct{}
	done  chan struct{}
	err   error
	left  bool // the takeover that did the reading has ended: the others must read again
}

// loadTail blocks until the ledger's end has been read for a partition that this replica has just claimed. If no other
// replica can own the partition, the start has read the ledger already. loadTail then reads it only for an api that was
// added later.
func (d *tailLoads) loadTail(ctx context.Context, w *apiWorker, number int) error {
	if w.tailLoaded {
		return nil
	}
	for {
		d.mu.Lock()
		if d.next == nil {
			d.next = &tailLoad{parts: map[lease.PartitionID]struct{}{}, done: make(chan struct{})}
		}
		mine := d.next
		mine.parts[lease.PartitionID{API: w.Name, Number: number}] = struct{}{}
		reads := !d.reading
		d.reading = true
		d.mu.Unlock()
		if reads {
			d.loadForWaiting(ctx)
		}
		select {
		case <-mine.done:
			if mine.left && ctx.Err() == nil {
				continue
			}
			return mine.err
		case <-ctx.Done():
			return fmt.Errorf("ledger: %w", context.Cause(ctx))
		}
	}
}

// loadForWaiting reads the ledger until no takeover waits for it any more, or ctx ends. ctx belongs to one takeover. If
// it ends, the other takeovers read again.
func (d *tailLoads) loadForWaiting(ctx context.Context) {
	for lives := true; lives; {
		d.mu.Lock()
		now := d.next
		d.next, lives = nil, ctx.Err() == nil
		d.reading = now != nil && lives
		d.mu.Unlock()
		switch {
		case now == nil:
			return
		case lives:
			now.err = d.readFor(ctx, now.parts)
		default:
			now.err = fmt.Errorf("ledger: %w", context.Cause(ctx))
		}
		now.left = now.err != nil && ctx.Err() != nil
		close(now.done)
	}
}

func (d *tailLoads) readFor(ctx context.Context, parts map[lease.PartitionID]struct{}) error {
	workers, queued := map[string]*apiWorker{}, map[string]bool{}
	for p := range parts {
		workers[p.API] = d.worker(p.API)
		queued[queue.StreamName(p.API, p.Number)] = true
	}
	reached, err := d.Tail.Read(ctx, ledger.TailOptions{
		JetStream: d.opts.JetStream, Dedupe: d.opts.Dedupe.Reach(time.Now()), Bounds: d.opts.Tail, APIs: slices.Collect(maps.Keys(workers)), Now: d.opts.Now,
		Wants: func(api, key string) bool {
			_, ok := parts[lease.PartitionID{API: api, Number: queue.PartitionOf(key, len(workers[api].Partitions))}]
			return ok
		},
		Queued: func(stream string) bool { return queued[stream] },
		Ended:  func(api string, jobs []queue.Finished) { workers[api].Queue.AddFinished(jobs) },
		TATOf: func(c *ledger.Record, stored, began time.Time) bucket.Micros {
			if !d.Shared {
				return c.TAT // by this process's clock
			}
			return workers[c.API].pace.Inherit(c, stored, began)
		},
		Low: func(c *ledger.Record) {
			w := workers[c.API]
			w.caller.settlements.recall(c, w.Present().Rules.Budgets())
		},
	})
	if err != nil {
		return err
	}
	d.warnShort(reached)
	return nil
}

// warnShort logs once if the ledger does not reach back as far as job ids must be known.
func (d *tailLoads) warnShort(reached ledger.Extent) {
	if !reached.Begins.After(reached.Asked.Add(-d.opts.Dedupe.Length())) {
		return
	}
	d.mu.Lock()
	told := d.toldShort
	d.toldShort = true
	d.mu.Unlock()
	if !told {
		d.Log.Warn("the ledger does not reach back as far as dedupe: a job that ended before the ledger begins, and is sent again, may be "+
			"called again; lower dedupe, or give the ledger a larger store", "begins", reached.Begins)
	}
}

// loadTails reads the ledger's end for every partition at the start. It is for a process that shares its partitions
// with no other replica.
func (d *Dispatcher) loadTails(ctx context.Context) error {
	parts := map[lease.PartitionID]struct{}{}
	workers := d.workersNow()
	for _, w := range workers {
		for number := range w.Partitions {
			parts[lease.PartitionID{API: w.Name, Number: number}] = struct{}{}
		}
	}
	if len(parts) == 0 {
		return nil
	}
	if err := d.tailLoads.readFor(ctx, parts); err != nil {
		return err
	}
	for _, w := range workers {
		w.tailLoaded = true
	}
	return nil
}

// Remember reads the newest results and records after a restore, because restored streams have forgotten their message
// ids. It must be called before Run.
func (d *Dispatcher) Remember(ctx context.Context) error {
	newest := func(name string) stream.Newest {
		return stream.Newest{JetStream: d.opts.JetStream, Stream: name, Since: time.Now().Add(-ledger.TailAge)}
	}
	err := errors.Join(
		d.env.Results.Remember(ctx, newest(ledger.ResultsStream), d.opts.Log),
		d.env.Calls.Remember(ctx, newest(ledger.CallsStream), d.opts.Log))
	if err != nil {
		return fmt.Errorf("read the newest results and ledger records after a restore: %w", err)
	}
	return nil
}

package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

// diskGuard keeps intake from taking the room that ends need: in a store full of jobs no result, record or letter could be
// stored, and so no job could be let go of. It refuses jobs while seven eighths of the store are used; the streams of
// results, records, events and letters have bounds of their own within it.
type diskGuard struct {
	js   jetstream.JetStream
	room int64 // bytes that all streams may take together; 0: no bound is known
	most int64 // bytes that may be used for a job to be taken; 0 likewise
	log  *slog.Logger

	used  atomic.Int64 // when it was last looked at
	since atomic.Int64 // bytes of the jobs that were let through since, kept or not
	full  atomic.Bool

	looked int64 // of since, what had been let through when it was last looked at
}

const (
	roomCheck   = 500 * time.Millisecond // how often it is looked at
	jobOverhead = 1 << 10                // of a stored job, beside its body
)

func newDiskGuard(js jetstream.JetStream, room int64, log *slog.Logger) *diskGuard {
	return &diskGuard{js: js, room: room, most: room / 8 * 7, log: log.With("component", "store")}
}

// run looks how much is used until ctx ends.
func (g *diskGuard) run(ctx context.Context) error {
	tick := time.NewTicker(roomCheck)
	defer tick.Stop()
	for {
		g.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (g *diskGuard) look(ctx context.Context) {
	if g.most == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	settled, before := g.looked, g.since.Load()
	info, err := g.js.AccountInfo(ctx)
	if err != nil {
		return // what it was is what is known; without JetStream nothing is taken anyway
	}
	g.since.Add(-settled) // what was let through by the last question is stored by now, or was refused
	g.looked = before - settled
	g.used.Store(int64(info.Store))
	full := g.used.Load() >= g.most/16*15 // a large job may not fit any more
	switch was := g.full.Swap(full); {
	case full && !was:
		g.log.Error("the store is nearly full: no job is taken until there is room again; let more be called, delete results or letters, or enlarge it",
			"used_bytes", g.used.Load(), "most_bytes", g.most)
	case was && !full:
		g.log.Info("there is room in the store again: jobs are taken", "used_bytes", g.used.Load(), "most_bytes", g.most)
	}
}

// ratio is how much of the room is used, false where no bound is known.
func (g *diskGuard) ratio() (float64, bool) {
	if g.room == 0 {
		return 0, false
	}
	return float64(g.used.Load()) / float64(g.room), true
}

// err says that no job can be taken for want of room, nil when one can.
func (g *diskGuard) err() error {
	if g.full.Load() {
		return fmt.Errorf("the store is nearly full: %d of %d bytes that jobs may take are used", g.used.Load(), g.most)
	}
	return nil
}

// let counts a job that there is room for. One that is refused does not count: producers that try again keep nobody out.
func (g *diskGuard) let(size int64) bool {
	for {
		since := g.since.Load()
		if g.used.Load()+since+size > g.most {
			return false
		}
		if g.since.CompareAndSwap(since, since+size) {
			return true
		}
	}
}

// before puts the room before a queue.
func (g *diskGuard) before(q ingest.Queue) ingest.Queue {
	if g.most == 0 {
		return q
	}
	return guardedQueue{q, g}
}

// guardedQueue is a queue that takes jobs while there is room.
type guardedQueue struct {
	ingest.Queue
	guard *diskGuard
}

// Put implements ingest.Queue.
func (q guardedQueue) Put(j *ingest.Job, done func(ingest.Receipt, *ingest.Refusal)) {
	if !q.guard.let(int64(len(j.Body)) + jobOverhead) {
		done(ingest.Receipt{}, &ingest.Refusal{
			Code: ingest.Unavailable, Description: fmt.Sprintf("the store of api %s is nearly full: nothing was kept, try again later", j.API),
		})
		return
	}
	q.Queue.Put(j, done)
}

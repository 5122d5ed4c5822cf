package worker

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest"
)

// diskGuard makes the intake refuse jobs that would fill more than seven eighths of the store. The rest is for the ends
// of jobs: if no result, record or letter could be stored, no job could be deleted. The streams of results, records,
// events and letters have bounds of their own within the store. Bytes count once, however many replicas a stream has.
type diskGuard struct {
	js       jetstream.JetStream
	inside   bool // the server inside bounds the store, and does not say so in the account's limits
	replicas int
	log      *slog.Logger

	room  atomic.Int64 // bytes that all streams may take together, 0: unknown
	used  atomic.Int64 // bytes in use at the last look
	since atomic.Int64 // bytes of the jobs that were let through and are not yet part of used
	full  atomic.Bool

	looked int64 // the part of since that used may not include yet
}

const (
	roomCheck   = 500 * time.Millisecond // time between two looks
	jobOverhead = 1 << 10                // bytes of a stored job in addition to its body
)

func newDiskGuard(js jetstream.JetStream, room int64, inside bool, replicas int, log *slog.Logger) *diskGuard {
	g := &diskGuard{js: js, inside: inside, replicas: replicas, log: log.With("component", "store")}
	g.room.Store(room)
	return g
}

// most returns the bytes up to which jobs are accepted, 0 if the room is unknown.
func (g *diskGuard) most() int64 { return g.room.Load() / 8 * 7 }

// run reads the use of the store and its limit every roomCheck until ctx ends.
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
	ctx, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	settled, before := g.looked, g.since.Load()
	info, err := g.js.AccountInfo(ctx)
	if err != nil {
		return // the last known use stays; without JetStream no job is accepted anyway
	}
	g.since.Add(-settled) // jobs let through before the previous look are stored by now, or were refused
	g.looked = before - settled
	used, room := connect.Room(info, g.replicas)
	if g.inside {
		room = g.room.Load()
	}
	g.used.Store(used)
	g.room.Store(room)
	full := room > 0 && used >= g.most()/16*15 // a large job may no longer fit
	switch was := g.full.Swap(full); {
	case full && !was:
		g.log.Error("the store is nearly full: intake refuses jobs that do not fit, and this replica is not ready; delete results or letters, raise rates, or enlarge the store",
			"used_bytes", g.used.Load(), "most_bytes", g.most())
	case was && !full:
		g.log.Info("the store has room again: intake accepts all jobs", "used_bytes", g.used.Load(), "most_bytes", g.most())
	}
}

// ratio returns how much of the room is used, 0 to 1. It returns false if the room is unknown.
func (g *diskGuard) ratio() (float64, bool) {
	room := g.room.Load()
	if room == 0 {
		return 0, false
	}
	return float64(g.used.Load()) / float64(room), true
}

// err returns an error if the store has no room for jobs, else nil.
func (g *diskGuard) err() error {
	if g.full.Load() {
		return fmt.Errorf("the store is nearly full: %d of %d bytes that jobs may take are used", g.used.Load(), g.most())
	}
	return nil
}

// let reports whether a job of size bytes fits, and counts its bytes if it does. A refused job does not count, so a
// producer that repeats a job that is too large does not shut out other producers.
func (g *diskGuard) let(size int64) bool {
	for {
		since := g.since.Load()
		if most := g.most(); most > 0 && g.used.Load()+since+size > most {
			return false
		}
		if g.since.CompareAndSwap(since, since+size) {
			return true
		}
	}
}

// before returns a queue that accepts jobs only while there is room.
func (g *diskGuard) before(q ingest.Queue) ingest.Queue { return guardedQueue{q, g} }

// guardedQueue is a queue that accepts jobs while there is room.
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

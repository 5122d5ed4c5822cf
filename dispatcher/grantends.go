package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/schedule"
)

// Bounds of reports to a store on another machine.
const (
	mostTold  = 256             // ends of grants in one round trip
	lastWords = 3 * time.Second // how long a stopping worker tries to report the ends of grants
)

// grantEnds reports the ends of grants to the store of slots that granted them. It is safe for concurrent use.
type grantEnds struct {
	store Store
	clock schedule.StoreClock
	log   *slog.Logger
	heard func(uses []bucket.Use) // called when the store has counted these ends
	tell  chan struct{}           // signals that ended has grown

	mu    sync.Mutex   // guards what follows
	ended []bucket.Use // to be reported to a store on another machine
	// held has the serials of the grants for which ended has a report that an operation still holds the slot. Each poll
	// makes such a report, but while the store does not answer, one for each grant is enough.
	held map[int64]struct{}
}

// settle reports the ends of grants to the store: at once, or in the background if the store is on another machine.
func (g *grantEnds) settle(ctx context.Context, uses []bucket.Use) {
	if len(uses) == 0 {
		return
	}
	if g.clock == schedule.OwnClock {
		if err := g.store.Settle(ctx, uses); err != nil {
			g.log.Warn("could not send the ends of grants to the limiter", "count", len(uses), "err", err)
			return
		}
		g.heard(uses)
		return
	}
	g.mu.Lock()
	g.addLocked(uses)
	g.mu.Unlock()
	select {
	case g.tell <- struct{}{}:
	default:
	}
}

// addLocked adds ends to those that wait to be reported. If a report that an operation holds its slot waits already,
// addLocked skips a further one.
func (g *grantEnds) addLocked(uses []bucket.Use) {
	if g.held == nil {
		g.held = map[int64]struct{}{}
	}
	for _, u := range uses {
		if _, waits := g.held[u.Grant.Serial]; waits && u.Hold > 0 {
			continue
		}
		if delete(g.held, u.Grant.Serial); u.Hold > 0 {
			g.held[u.Grant.Serial] = struct{}{}
		}
		g.ended = append(g.ended, u)
	}
}

// run starts reporting the ends of grants to a store on another machine, many in one round trip. It repeats each report
// until the store has acknowledged it: a permit that is not given back stays taken until its lease ends. No more ends
// wait here than a worker has calls and operations. The returned function ends the reporting.
func (g *grantEnds) run(hard context.Context) (end func()) {
	if g.clock == schedule.OwnClock {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(hard))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			select {
			case <-g.tell:
				_ = g.tellEnded(ctx) // what is left is told at the end
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-done
		last, cancel := context.WithTimeout(context.WithoutCancel(hard), lastWords)
		defer cancel()
		if err := g.tellEnded(last); err != nil {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.log.Warn("stopped before the limiter had the ends of all grants; their permits return when their leases end", "count", len(g.ended), "err", err)
		}
	}
}

// tellEnded reports all waiting ends, or as many as it can until ctx ends. It returns the last error if some are left.
func (g *grantEnds) tellEnded(ctx context.Context) error {
	wait := schedule.StoreRetry
	for {
		g.mu.Lock()
		n := min(len(g.ended), mostTold)
		uses := g.ended[:n:n]
		g.mu.Unlock()
		if n == 0 {
			return nil
		}
		trip, cancel := context.WithTimeout(ctx, roundTrip)
		err := g.store.Settle(trip, uses)
		cancel()
		if err != nil {
			if !stream.Sleep(ctx, wait) {
				return err
			}
			wait = min(2*wait, schedule.MostStoreRetry)
			continue
		}
		wait = schedule.StoreRetry
		g.mu.Lock()
		g.ended = g.ended[n:]
		for _, u := range uses {
			delete(g.held, u.Grant.Serial)
		}
		if len(g.ended) == 0 {
			g.ended = nil
		}
		g.mu.Unlock()
		g.heard(uses)
	}
}

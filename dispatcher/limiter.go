package dispatcher

import (
	"context"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// Bounds of the talk with a store that is elsewhere.
const (
	mostTold  = 256             // ends of grants in one round trip
	lastWords = 3 * time.Second // how long a stopping lane tries to tell the ends of grants
	roundTrip = 2 * time.Second // the longest one may take
)

// reserve asks the store, outside the lock. A store that is elsewhere is asked in the background, one round at a time,
// so that calls start meanwhile.
func (l *lane) reserve(hard context.Context, fx *schedule.Effects) {
	if l.clock == schedule.OwnClock {
		l.round(hard, fx)
		return
	}
	asked := *fx
	l.rounds.Go(func() {
		l.round(hard, &asked)
		l.kick()
	})
}

// round asks and takes the answer in. It is not given up when the lane stops: slots that were granted go back.
func (l *lane) round(hard context.Context, fx *schedule.Effects) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), roundTrip)
	defer cancel()
	r := schedule.Reply{Sent: l.now()}
	if r.Err = l.reachable(ctx); r.Err == nil {
		r.Sent = l.now()
		r.Answers, r.Err = l.store.Reserve(ctx, fx.Asks)
	}
	r.Came = l.now()
	for _, a := range r.Answers {
		if a.Wait.Limit == bucket.OwnCheckpoint {
			l.checkpoint()
		}
	}
	l.heard(r.Err)
	l.mu.Lock()
	out := l.s.Answer(fx, r)
	for _, j := range out.Withdrawn {
		l.restOrderedLocked(j)
	}
	for _, j := range out.Impossible {
		l.orderLocked(jobLocked(j), toRefuse)
	}
	for _, j := range out.OverBudget {
		l.orderLocked(jobLocked(j), toOverdraw)
	}
	l.mu.Unlock()
	l.tellHolds(out.News)
	l.settleGrants(hard, out.Unused)
}

// reachable tries a store that did not answer last time with what takes no slot: asks that come through after all, when
// nobody waits for their answer any more, would use up slots and permits.
func (l *lane) reachable(ctx context.Context) error {
	l.mu.Lock()
	down := !l.down.IsZero()
	l.mu.Unlock()
	if !down {
		return nil
	}
	return l.store.Settle(ctx, nil)
}

// heard follows whether the store answers, and tells its changes, once each.
func (l *lane) heard(err error) {
	l.mu.Lock()
	was := l.down
	switch {
	case err != nil && was.IsZero():
		l.down = time.Now()
	case err == nil:
		l.down = time.Time{}
	}
	l.mu.Unlock()
	switch {
	case err != nil && was.IsZero():
		l.d.metrics.limiterLost(l.d.down.Add(1))
		l.log.Warn("no slots can be had: calls hold until the limiter answers", "err", err)
	case err == nil && !was.IsZero():
		l.d.metrics.limiterLost(l.d.down.Add(-1))
		l.log.Info("the limiter answers again: calls go on", "wait", time.Since(was).Round(time.Millisecond))
	}
}

// HeardOfLimiter says whether an api's limits could be reached just now: where no call waits, nobody else would notice.
func (d *Dispatcher) HeardOfLimiter(api string, err error) {
	if l := d.lane(api); l != nil {
		l.heard(err)
	}
}

// HeardOfLevels tells how much of an api's shared limits is used, for its forecasts. levels is not changed afterwards.
func (d *Dispatcher) HeardOfLevels(api string, levels []bucket.Level) {
	if l := d.lane(api); l != nil {
		l.mu.Lock()
		l.s.LearnLevels(levels)
		l.mu.Unlock()
	}
}

// Price is what one call of an api costs now, in millionths; 0 for an api that is not dispatched here.
func (d *Dispatcher) Price(api string) int64 {
	l := d.lane(api)
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.terms.api.Price
}

// settleGrants tells the store the ends of grants: at once, or where it is elsewhere in the background.
func (l *lane) settleGrants(ctx context.Context, uses []bucket.Use) {
	if len(uses) == 0 {
		return
	}
	if l.clock == schedule.OwnClock {
		if err := l.store.Settle(ctx, uses); err != nil {
			l.log.Warn("the ends of grants could not be told to the limiter", "count", len(uses), "err", err)
		}
		return
	}
	l.mu.Lock()
	l.ended = append(l.ended, uses...)
	l.mu.Unlock()
	select {
	case l.tell <- struct{}{}:
	default:
	}
}

// startTelling tells a store that is elsewhere the ends of grants, many at a time, and again until it has heard: a
// permit that nobody gives back is lost for its lease. At most the calls of a lane wait here. The returned function ends it.
func (l *lane) startTelling(hard context.Context) (end func()) {
	if l.clock == schedule.OwnClock {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(hard))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			select {
			case <-l.tell:
				l.tellEnded(ctx)
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-done
		last, cancel := context.WithTimeout(context.WithoutCancel(hard), lastWords)
		defer cancel()
		l.tellEnded(last)
	}
}

// tellEnded tells all that is to be told, or as much as can be until ctx ends.
func (l *lane) tellEnded(ctx context.Context) {
	wait := schedule.StoreRetry
	for {
		l.mu.Lock()
		n := min(len(l.ended), mostTold)
		uses := l.ended[:n:n]
		l.mu.Unlock()
		if n == 0 {
			return
		}
		trip, cancel := context.WithTimeout(ctx, roundTrip)
		err := l.store.Settle(trip, uses)
		cancel()
		if err != nil {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				l.log.Warn("stopped before the limiter knew the ends of grants: permits come back with their leases", "count", n, "err", err)
				return
			}
			wait = min(2*wait, schedule.MostStoreRetry)
			continue
		}
		wait = schedule.StoreRetry
		l.mu.Lock()
		l.ended = l.ended[n:]
		if len(l.ended) == 0 {
			l.ended = nil
		}
		l.s.PermitFreed()
		l.mu.Unlock()
		l.kick()
	}
}

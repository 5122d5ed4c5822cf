package dispatcher

import (
	"context"
	"fmt"
	"slices"

	"weir/bucket"
	"weir/bucket/fault"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
)

// terms are what an api's calls are made by: its configuration and the connections to it. They are not changed but
// replaced. A job is made ready, called and judged by the same terms: a change in between mixes nothing. One that is
// ready when new terms come, and has no slot yet, is made ready again by those.
type terms struct {
	api    *httpcall.API
	call   *httpcall.Client
	policy *schedule.Policy // the schedule's part of it
}

func (d *Dispatcher) newTerms(api *httpcall.API, former *terms) *terms {
	var before *httpcall.Client
	if former != nil {
		before = former.call
	}
	return &terms{api, httpcall.NewClient(api, "weir/"+d.opts.Version, schedule.MaxCalls, before), policyOf(api)}
}

func policyOf(api *httpcall.API) *schedule.Policy {
	r := &api.Retry
	return &schedule.Policy{
		Rules: api.Rules, Price: api.Price, Breaker: api.Breaker,
		Retry: schedule.Retry{Attempts: r.Attempts, Min: r.Min, Max: r.Max, HoldAPI: r.HoldAPI, Adaptive: r.Adaptive},
	}
}

// bind has a job go by an api's terms.
func (j *job) bind(by *terms) { j.terms, j.Policy = by, by.policy }

// change is a new configuration of a lane's api on its way to the loop.
type change struct {
	api  *httpcall.API
	done chan error
}

// Apply changes what an api is called by. Jobs that wait get the new rules and calls that run end by the old ones; a
// slot that was granted stays granted. With an error nothing has changed, unless ctx ended. One change is applied at a
// time.
func (d *Dispatcher) Apply(ctx context.Context, api *httpcall.API) error {
	l := d.lane(api.Name)
	if l == nil {
		return ErrNoAPI
	}
	c := change{api, make(chan error, 1)}
	select {
	case l.changes <- c:
	case <-ctx.Done():
		return fmt.Errorf("api %s: %w", l.name, context.Cause(ctx))
	}
	l.kick()
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("api %s: %w", l.name, context.Cause(ctx))
	}
}

// adoptChange puts a change in force, if one waits and no round of asks is under way. Only the loop does so, which begins every round:
// so no ask that counts by the rules of before reaches the store after it has the new ones.
func (l *lane) adoptChange() {
	l.mu.Lock()
	asking := l.s.Asking()
	l.mu.Unlock()
	if asking {
		return // the end of the round kicks the loop
	}
	select {
	case c := <-l.changes:
		c.done <- l.adopt(c.api)
	default:
	}
}

func (l *lane) adopt(api *httpcall.API) error {
	if err := l.store.Apply(api.Rules); err != nil {
		return fmt.Errorf("api %s: %w", l.name, err)
	}
	l.mu.Lock()
	former, now := l.terms, l.now()
	next := l.d.newTerms(api, former)
	l.since = now
	l.terms = next
	l.s.Adopt(next.policy)
	l.s.EndDenial(now)
	lines := slices.Collect(l.s.Queues())
	l.mu.Unlock()
	for len(lines) > 0 {
		n := min(len(lines), lookAtOnce)
		l.mu.Lock()
		for _, q := range lines[:n] {
			l.s.Rebind(q, now)
		}
		l.mu.Unlock()
		lines = lines[n:]
	}
	if former.call.Conns != next.call.Conns {
		former.call.Conns.Close()
	}
	return nil
}

// letGo gives up what was made ready in vain.
func (l *lane) letGo(stale []*schedule.Job) {
	if len(stale) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range stale {
		l.restOrderedLocked(j)
	}
}

// restOrderedLocked gives up what was made ready of one job, and has its worker leave the job alone.
func (l *lane) restOrderedLocked(t *schedule.Job) {
	j := jobLocked(t)
	l.dropIntentsLocked(j)
	l.orderLocked(j, toRest)
}

// knownLocked is what the store or the ledger knows of a key's theoretical arrival time, 0 if nothing. Both may know it in
// intervals of a rate that holds no more; see rebind.
func (l *lane) knownLocked(key string) bucket.Micros {
	if l.clock == schedule.OtherClock {
		return max(l.tat(key), l.d.tail.TAT(l.name, key))
	}
	limits := l.s.LimitsOf(key)
	tat := l.recordedLocked(key, limits)
	if stored := l.tat(key); stored > tat {
		tat = max(tat, min(stored, l.now().Add(schedule.LeastAhead+l.s.DrainTime(limits))))
	}
	return tat
}

// recordedLocked is what the ledger of former runs knows.
func (l *lane) recordedLocked(key string, limits *bucket.KeyLimits) bucket.Micros {
	tat := l.d.tail.TAT(l.name, key)
	if tat == 0 || fault.Planted(fault.LimiterOpen) {
		return 0
	}
	return min(tat, max(l.since, l.d.tail.ReadAt(l.name)).Add(l.s.DrainTime(limits)))
}

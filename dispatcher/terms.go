package dispatcher

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/fault"
)

// terms are what an api's calls are made by: its configuration and the connections to it. They are not changed but
// replaced. A job is made ready, called and judged by the same terms: a change in between mixes nothing. One that is
// ready when new terms come, and has no slot yet, is made ready again by those.
type terms struct {
	api  *API
	call *caller
}

// newTerms takes the connections over from the former terms where they lead to the same place.
func (d *Dispatcher) newTerms(api *API, former *terms) *terms {
	idle := idleUnrepeatable
	if api.Idempotency != nil {
		idle = idleIdempotent
	}
	c := &caller{api: api, agent: "weir/" + d.opts.Version}
	if former != nil && former.api.URL.Scheme == api.URL.Scheme && former.api.URL.Host == api.URL.Host &&
		(former.api.Idempotency == nil) == (api.Idempotency == nil) {
		c.conns = former.call.conns
	} else {
		c.conns = newConnections(api.URL, idle, maxCalls)
	}
	return &terms{api, c}
}

// lateness is how long after its slot a call may still leave: the rest of the jitter is the network's.
func lateness(r *bucket.Rules) time.Duration { return max(r.Jitter*4/5, time.Millisecond) }

// judgedBy is what says what became of a call: the terms it was made by. But where the api is not idempotent any more, a
// call that may have been processed must not be followed by another, which would carry no key.
func (l *lane) judgedBy(t *task) *API {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s.terms.api.Idempotency != nil || t.terms.api.Idempotency == nil {
		return t.terms.api
	}
	strict := *t.terms.api
	strict.Idempotency = nil
	return &strict
}

const doubtDetail = "an earlier call may have been processed, and the api has stopped being configured as idempotent since"

// change is a new configuration of a lane's api on its way to the loop.
type change struct {
	api  *API
	done chan error
}

// Apply changes what an api is called by. Jobs that wait get the new rules and calls that run end by the old ones; a
// slot that was granted stays granted. With an error nothing has changed, unless ctx ended. One change is applied at a
// time.
func (d *Dispatcher) Apply(ctx context.Context, api *API) error {
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
	asking := l.s.rounds > 0
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

func (l *lane) adopt(api *API) error {
	if err := l.store.Apply(api.Rules); err != nil {
		return fmt.Errorf("api %s: %w", l.name, err)
	}
	l.mu.Lock()
	former, now := l.s.terms, l.now()
	next := l.d.newTerms(api, former)
	l.since = now
	l.s.adopt(next)
	lines := make([]*line, 0, len(l.s.lines))
	for _, line := range l.s.lines {
		lines = append(lines, line)
	}
	l.mu.Unlock()
	for len(lines) > 0 {
		n := min(len(lines), lookAtOnce)
		l.mu.Lock()
		for _, line := range lines[:n] {
			l.s.rebind(line, now)
		}
		l.mu.Unlock()
		lines = lines[n:]
	}
	if former.call.conns != next.call.conns {
		former.call.conns.close()
	}
	return nil
}

// letGo gives up what was made ready in vain.
func (l *lane) letGo(stale []*task) {
	if len(stale) == 0 {
		return
	}
	l.mu.Lock()
	for _, t := range stale {
		l.dropIntents(t)
	}
	l.mu.Unlock()
	for _, t := range stale {
		t.terms.call.conns.release()
	}
}

// adopt puts new terms in force. The shared limits are asked again at once; every line is then to be rebound.
func (s *schedule) adopt(next *terms) {
	s.terms, s.rules = next, &next.api.Rules
	s.pace.late = lateness(s.rules)
	s.until, s.by, s.levels = 0, "", nil
	s.habits.costs, s.habits.tats = nil, nil
	if next.api.Breaker.Failures == 0 {
		s.breaker, s.probe = breaker{}, nil
	}
	s.reseat()
}

// unready lets what is ready rest that cannot be called next: what former terms made ready, and what stands behind a job
// that rests and was never called. It would keep room from that very job.
func (s *schedule) unready(l *line, now bucket.Micros, fx *effects) {
	gap := false
	for _, t := range l.tasks {
		if t.phase == ready && (gap || t.terms != s.terms || !s.mayCall(t)) {
			s.withdraw(t, now)
			s.touch(l)
			fx.stale = append(fx.stale, t)
		}
		gap = gap || t.phase == resting && t.calls == 0
	}
}

// rebind gives a line the present rules. What the line knows of its bucket it knows in intervals of the former rate: a
// full bucket of the present one is the most it can mean. The store has it exactly.
func (s *schedule) rebind(l *line, now bucket.Micros) {
	if s.lines[l.key] != l {
		return // it has been let go of since
	}
	l.limits = s.limitsOf(l.key)
	if l.tenant == nil || s.tenants[l.tenant.name] != l.tenant {
		l.blocked, l.queued, l.costly, l.pass, l.toll, l.lent = false, false, false, 0, 0, 0
		s.join(l)
	}
	full := now.Add(s.drainTime(l.limits))
	l.tat, l.slipped = min(l.tat, full), min(l.slipped, full)
	if theirs := s.offset.theirs(full); theirs != 0 {
		l.floor = min(l.floor, theirs)
	}
	l.askAt = 0
	for _, t := range l.tasks {
		if t.phase == resting && t.limited {
			t.notBefore = now
		}
	}
	s.touch(l)
}

// drainTime is how long a full bucket takes to drain.
func (s *schedule) drainTime(limits *bucket.KeyLimits) time.Duration {
	return s.rules.Interval(limits.Rate).Duration() * time.Duration(limits.Rate.Burst)
}

// known is what the store or the ledger knows of a key's theoretical arrival time, 0 if nothing. Both may know it in
// intervals of a rate that holds no more; see rebind. Called with the lock held.
func (l *lane) known(key string) bucket.Micros {
	if l.s.clock == OtherClock {
		return max(l.tat(key), l.d.tail.tat(l.name, key))
	}
	limits := l.s.limitsOf(key)
	tat := l.recorded(key, limits)
	if stored := l.tat(key); stored > tat {
		tat = max(tat, min(stored, l.now().Add(leastAhead+l.s.drainTime(limits))))
	}
	return tat
}

// recorded is what the ledger of former runs knows. Called with the lock held.
func (l *lane) recorded(key string, limits *bucket.KeyLimits) bucket.Micros {
	tat := l.d.tail.tat(l.name, key)
	if tat == 0 || fault.Planted(fault.LimiterOpen) {
		return 0
	}
	return min(tat, max(l.since, l.d.tail.readAt(l.name)).Add(l.s.drainTime(limits)))
}

package dispatcher

import (
	"time"

	"weir/bucket"
)

// verdicts are the tasks that a round of asks took out of the way of a call.
type verdicts struct {
	withdrawn  []*task // their slot is far: they rest until then
	impossible []*task // their cost can never pass
	overBudget []*task // the money is spent, and the budget says to bury
	unused     []bucket.Use
	news       []news
}

// reply is what came back from a round of asks.
type reply struct {
	sent, came bucket.Micros // by our clock
	answers    []bucket.Answer
	err        error
}

// answer takes what the store said to the asks of one step.
func (s *schedule) answer(fx *effects, r reply) verdicts {
	s.rounds--
	if r.err != nil {
		return s.unanswered(fx, r.came)
	}
	s.recovered()
	shift, unsure := s.shift(r)
	var out verdicts
	for i, tasks := range fx.asked {
		l, a := tasks[0].line, r.answers[i]
		a.Wait.Until += shift
		if n, told := s.heardOfBudget(&a, r.came); told {
			out.news = append(out.news, n)
		}
		tat, cold := l.tat, l.cold
		for k, t := range tasks {
			t.phase = ready
			if k < len(a.Grants) {
				at := a.Grants[k].At + shift
				t.last = at.Add(s.pace.late) - unsure
				at = max(at, l.lastGranted()) // the shift is not the same each time: a later slot must not look earlier
				t.phase, t.grant, t.at, t.base = granted, a.Grants[k], at, s.offset.base
				l.tat, l.cold = t.grant.TAT+shift, false
				t.asked = r.sent
				s.paced(t)
				s.learnGrant(t.costs, at)
				continue
			}
			s.refuse(t, &a.Wait, r.came, &out)
		}
		if l.passed {
			fx := effects{}
			s.giveBack(l, tasks[0], &fx)
			out.unused = append(out.unused, fx.unused...)
			l.tat, l.cold = tat, cold
		}
		s.blocked.took(l, l.toll*toll(len(a.Grants)))
		l.binds, l.askAt, l.costly = "", 0, false
		s.touch(l)
		switch {
		case len(a.Grants) == len(tasks), a.Wait.Never, a.Wait.Exhausted == bucket.DeadLetter:
		case a.Wait.Limit == ownRate:
			l.binds, l.askAt = ownRate, a.Wait.Until
		case s.waitsAlone(tasks[0], &a.Wait, r.came):
			l.binds = a.Wait.Limit
		default:
			l.binds, s.by, s.until = a.Wait.Limit, a.Wait.Limit, a.Wait.Until
			if l.costly = s.costOf(tasks[0], a.Wait.Limit) > 1; !l.costly || a.Wait.Until <= r.came.Add(longWait) {
				s.block(l)
			}
		}
	}
	s.withdrawBlocked(r.came, &out)
	return out
}

// withdrawBlocked lets go of what is ready and waits for a shared limit that turned out to be far.
func (s *schedule) withdrawBlocked(now bucket.Micros, out *verdicts) {
	if s.until <= now.Add(longWait) {
		return
	}
	for l := range s.blocked.all() {
		s.withdrawTasks(l, out)
	}
}

func (s *schedule) withdrawTasks(l *line, out *verdicts) {
	for _, t := range l.tasks {
		if t.phase == ready {
			s.withdraw(t, s.until)
			out.withdrawn = append(out.withdrawn, t)
		}
	}
}

// waitsAlone reports a job that was refused for what it costs by a limit whose whole count comes back at once: until then
// cheaper jobs of other keys may use what is left. Of a limit that comes back bit by bit they would leave it nothing.
func (s *schedule) waitsAlone(t *task, w *bucket.Wait, now bucket.Micros) bool {
	if w.Until <= now.Add(longWait) || s.costOf(t, w.Limit) <= 1 {
		return false
	}
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; l.Name == w.Limit {
			return l.Quota != nil && l.Quota.Window != bucket.Sliding
		}
	}
	return false
}

// costOf is what a task takes of a shared limit, 0 when there is none of that name. Money counts as 0: it costs every
// job of an api the same.
func (s *schedule) costOf(t *task, limit string) int64 {
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; l.Name == limit && l.Budget == nil && i < len(t.costs) {
			return t.costs[i]
		}
	}
	return 0
}

// refuse decides what becomes of a task that got no slot.
func (s *schedule) refuse(t *task, w *bucket.Wait, now bucket.Micros, out *verdicts) {
	switch {
	case w.Never:
		out.impossible = append(out.impossible, t)
		s.unstage(t)
	case w.Exhausted == bucket.DeadLetter:
		out.overBudget = append(out.overBudget, t)
		s.unstage(t)
	case w.Until > now.Add(longWait):
		s.withdraw(t, w.Until)
		out.withdrawn = append(out.withdrawn, t)
	}
}

// unanswered lets every line wait that asked in vain. While a store stays away one line at a time goes on asking, less
// and less often, and no other job is kept ready: its intent would make it unknown if the process died meanwhile.
func (s *schedule) unanswered(fx *effects, now bucket.Micros) verdicts {
	if s.failures == 0 {
		s.downAt = now
	}
	s.failures = min(s.failures+1, 30)
	s.by, s.until = storeDown, now.Add(min(storeRetry<<min(s.failures-1, 10), mostStoreRetry))
	for _, tasks := range fx.asked {
		l := tasks[0].line
		for _, t := range tasks {
			t.phase = ready
		}
		s.blocked.took(l, 0)
		l.binds, l.askAt = storeDown, 0
		s.block(l)
		s.touch(l)
	}
	var out verdicts
	if now < s.downAt.Add(longWait) {
		return out
	}
	for l := range s.blocked.all() {
		s.withdrawTasks(l, &out)
	}
	return out
}

// recovered ends an outage of the store: who waited for it need wait no longer.
func (s *schedule) recovered() {
	if s.failures > 0 {
		s.failures, s.until, s.by = 0, 0, ""
	}
}

// shift is what turns the store's times into ours, and how much later that may be than it should.
func (s *schedule) shift(r reply) (shift, unsure bucket.Micros) {
	if s.clock == OwnClock || len(r.answers) == 0 || r.answers[0].Now == 0 {
		return 0, 0
	}
	s.offset.observe(r.sent, r.came, r.answers[0].Now)
	s.learnTrip(r.sent.Until(r.came))
	return s.offset.most(), s.offset.unsure()
}

// learnTrip follows how long a round trip takes: up at once, down slowly. Slots are asked for two of them ahead, one for
// the ask and one in case it just missed the round before, and a tick.
func (s *schedule) learnTrip(took time.Duration) {
	s.trip = max(took, s.trip-s.trip/64+took/64)
	s.pace.ahead = min(leastAhead+2*s.trip, MostAhead)
}

// knownTAT is the theoretical arrival time, by our clock, that is known of a key without a line; 0 if none is.
func (s *schedule) knownTAT(key string) bucket.Micros {
	if s.clock == OwnClock {
		return s.tatOf(key)
	}
	return s.offset.ours(s.tatOf(key))
}

// floor is what the store must be told of a line's theoretical arrival time, by its own clock.
func (s *schedule) floor(l *line) bucket.Micros {
	if s.clock == OwnClock {
		return l.tat
	}
	return max(l.floor, s.offset.theirs(l.tat))
}

// longWait is from when on a job is not kept ready: its message and its intent go, and come again. A crash makes every job
// unknown that has an intent and was not called. At 2 s a crash under a shared limit parked 5.6 jobs that way, since the
// limit's checkpoint makes calls wait for as long after a start; at this it parks 2.7, of which one had been called.
const longWait = 250 * time.Millisecond

func (s *schedule) withdraw(t *task, until bucket.Micros) {
	s.noProbe(t)
	s.cleared(t)
	t.phase, t.notBefore, t.limited = resting, until.Add(-s.pace.lead), true
	t.unload()
	s.staged--
}

// ownRate is how a store names a key's own rate; storeDown is how the schedule names a store that did not answer.
const (
	ownRate   = "rate"
	storeDown = "limiter unreachable"

	storeRetry     = 100 * time.Millisecond
	mostStoreRetry = time.Second
)

package schedule

import (
	"slices"
	"time"

	"weir/bucket"
)

// maxAsks bounds the asks of one round trip to a store.
const maxAsks = 64

// ask asks for slots for the queue's ready jobs and returns when to look again.
func (s *step) ask(q *KeyQueue) bucket.Micros {
	s.unready(q)
	s.unstick(q)
	now := s.now
	free, again := q.free(now)
	if free <= 0 && q.count(ready) > 0 && q.count(asking, granted) == 0 { // asking and granted jobs touch q later
		again = min(again, q.newest().Add(LongWait))
	}
	var jobs []*Job
	for _, j := range q.Jobs {
		if j.Phase == staging && !j.First() {
			continue // a retry may be overtaken; it may wait for memory that jobs behind it hold
		}
		if j.Phase == looking || j.Phase == staging || j.Phase == asking || j.First() && (j.Phase == resting || j.Phase == settling || j.NotBefore > now) {
			if j.Phase == ready {
				again = min(again, j.NotBefore)
			}
			break // order: no job behind it may overtake
		}
		if j.Phase != ready {
			continue
		}
		if j.NotBefore > now {
			again = min(again, j.NotBefore) // a retry that became ready before its time
			continue
		}
		if j.Past(now) {
			s.expire(j)
			continue
		}
		if int64(len(jobs)) >= min(free, maxAsks) {
			break
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 {
		return again
	}
	if hold := s.holds.of(q); hold > now {
		return hold // a slot before that could not be used
	}
	if again, may := s.mayAsk(q); !may {
		return again
	}
	if s.isFull() || s.gate.isShut(now) || s.store.isAsked() || s.turns.asking() > 0 && !q.seat.called {
		s.turns.wait(q)
		return Never
	}
	if q.askAt > now {
		return q.askAt
	}
	if slot := s.policy.slot(q.Limits, q.TAT, now, 1); slot > now.Add(s.Pipe.pace.ReserveAhead) {
		return slot.Add(-s.Pipe.pace.ReserveAhead)
	}
	jobs = jobs[:s.turn(q, jobs)]
	for _, j := range jobs {
		j.Phase = asking
		s.Pipe.exit.enter(j)
	}
	s.turns.take(q, s.Shared.serviceTime(jobs[0].Costs), len(jobs))
	ask := bucket.Ask{
		Key: q.Key, Limits: *q.Limits, Costs: jobs[0].Costs, Want: len(jobs), Horizon: s.Pipe.pace.ReserveAhead,
		Tenant: q.seat.tenant.name, Service: bucket.Micros(q.seat.lastService),
	}
	if q.cold {
		ask.Floor = s.Floor(q)
	}
	s.fx.Asks = append(s.fx.Asks, ask)
	s.fx.asked = append(s.fx.asked, jobs)
	return Never // the answer touches the queue
}

// plentyAfter is how long every shared limit must have gone without a refusal before a turn may be more than one
// call.
const plentyAfter = time.Second

// turn returns for how many of its ready jobs a queue asks at once. Under a shared limit keys take turns of one call
// each. A store on another machine would then give a key one call a round trip, however much of the limit is free. So
// if no limit has refused anything lately, the queues that ask or wait divide the asks of a whole round trip among
// themselves.
func (s *step) turn(q *KeyQueue, jobs []*Job) int {
	switch {
	case s.holds.slow(q):
		return 1
	case len(s.Shared) == 0:
		return min(len(jobs), s.Pipe.exit.room())
	case s.store.clock == OwnClock || !s.gate.isPlenty(s.now):
		return 1
	}
	left := maxAsks
	for _, asked := range s.fx.asked {
		left -= len(asked)
	}
	most := min(len(jobs), s.Pipe.exit.room(), left/(s.turns.waiting()+len(s.agenda.active)+1))
	n := 1
	for n < most && slices.Equal(jobs[n].Costs, jobs[0].Costs) {
		n++
	}
	return n
}

// mayAsk reports whether the governors let a queue ask for a slot. If not, the queue is blocked, or the schedule looks
// at it when again has come.
func (s *step) mayAsk(q *KeyQueue) (again bucket.Micros, may bool) {
	s.holds.relax(q, s.policy.Retry.Adaptive, s.now)
	if q.brake.governor != nil {
		if q.count(asking, granted) > 0 {
			return Never, false // one at a time: its call will touch the queue
		}
		if at := q.brake.earliest(); at > s.now {
			return at, false
		}
	}
	if !s.holds.governor.slows() {
		return 0, true
	}
	if at := s.holds.governor.earliest(); at > s.now {
		s.gate.shut(slowed, max(s.gate.opens, at))
	}
	if s.gate.isShut(s.now) || len(s.fx.Asks) > 0 {
		s.turns.wait(q)
		return Never, false
	}
	return 0, true
}

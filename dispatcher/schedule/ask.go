package schedule

import (
	"slices"
	"time"

	"weir/bucket"
)

// maxAsks bounds the asks of one round trip to a store.
const maxAsks = 64

// ask asks for slots for the queue's ready jobs and returns when to look again.
func (s *Schedule) ask(q *KeyQueue, now bucket.Micros, fx *Effects) bucket.Micros {
	s.unready(q, now, fx)
	s.unstick(q, now, fx)
	free, again := q.free(now)
	if free <= 0 && q.count(ready) > 0 && q.count(asking, granted) == 0 { // asking and granted jobs will touch q
		again = min(again, q.newest().Add(LongWait))
	}
	var jobs []*Job
	for _, j := range q.Jobs {
		if j.Phase == staging && !j.First() {
			continue // a retry may be overtaken; it may wait for memory that jobs behind it hold
		}
		if j.Phase == staging || j.Phase == asking || j.First() && (j.Phase == resting || j.Phase == settling || j.NotBefore > now) {
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
			s.expire(j, fx)
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
	if hold := s.heldUntil(q); hold > now {
		return hold // a slot before that could not be used
	}
	if again, may := s.mayAsk(q, now, fx); !may {
		return again
	}
	if s.full() || s.gate.opens > now || s.store.rounds > 0 || s.turns.lines[askLine].queues > 0 && !q.seat.called {
		s.turns.wait(q)
		return Never
	}
	if q.askAt > now {
		return q.askAt
	}
	if slot := bucket.Forecast(*q.Limits, s.rules.Interval(q.Limits.Rate), q.TAT, now, 1); slot > now.Add(s.pace.ReserveAhead) {
		return slot.Add(-s.pace.ReserveAhead)
	}
	jobs = jobs[:s.turn(q, jobs, now, fx)]
	for _, j := range jobs {
		j.Phase = asking
	}
	s.turns.take(q, s.shared.serviceTime(jobs[0].Costs), len(jobs))
	ask := bucket.Ask{Key: q.Key, Limits: *q.Limits, Costs: jobs[0].Costs, Want: len(jobs), Horizon: s.pace.ReserveAhead}
	if q.cold {
		ask.Floor = s.Floor(q)
	}
	fx.Asks = append(fx.Asks, ask)
	fx.asked = append(fx.asked, jobs)
	return Never // the answer touches the queue
}

// plentyAfter is how long every shared limit must have gone without a refusal before a turn may be more than one
// call.
const plentyAfter = time.Second

// turn returns for how many of its ready jobs a queue asks at once. Under a shared limit keys take turns of one
// call each. A store on another machine would then give a key one call a round trip, however much of the limit
// is free. So if no limit has refused anything lately, the queues that ask or wait share the asks of a whole
// round trip.
func (s *Schedule) turn(q *KeyQueue, jobs []*Job, now bucket.Micros, fx *Effects) int {
	switch {
	case s.slows(q):
		return 1
	case len(s.shared) == 0:
		return len(jobs)
	case s.store.clock == OwnClock || !s.gate.isPlenty(now):
		return 1
	}
	left := maxAsks
	for _, asked := range fx.asked {
		left -= len(asked)
	}
	most := min(len(jobs), left/(s.turns.waiting()+len(s.active)+1))
	n := 1
	for n < most && slices.Equal(jobs[n].Costs, jobs[0].Costs) {
		n++
	}
	return n
}

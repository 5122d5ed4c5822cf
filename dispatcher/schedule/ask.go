package schedule

import (
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
	"weir/dispatcher/schedule/turns"
)

// maxAsks bounds the slots that one round trip asks a store for.
const maxAsks = turns.MostInRow

// ask asks for slots for the queue's ready jobs of the priorities in may. It returns when the schedule must look at the
// queue again.
func (s *step) ask(q *KeyQueue, may classSet) bucket.Micros {
	s.unready(q)
	s.unstick(q)
	now := s.now
	free, again := q.free(now)
	if free <= 0 && q.Jobs.count(ready) > 0 && q.Jobs.count(asking, granted) == 0 { // asking and granted jobs touch q later
		again = min(again, q.Jobs.newest().Add(limits.LongWait))
	}
	var jobs []*Job
	slow := s.isSlow(q, free)
	var over classSet    // the priorities for which no further job can ask
	var awaited classSet // the priorities for which only jobs that were called before can ask
	for _, j := range q.Jobs {
		if j.awaitsAnswer(s.policy.Reuse) {
			awaited = awaited.with(j.Priority)
			continue
		}
		if over.has(j.Priority) || awaited.has(j.Priority) && j.First() || !slow && !may.has(j.Priority) {
			continue
		}
		if j.Phase == staging && !j.First() {
			continue // a retry may be overtaken: it may be waiting for memory that jobs behind it hold
		}
		if j.Phase == staging || j.Phase == asking || j.First() && (j.Phase == resting || j.Phase == settling || j.NotBefore > now) {
			if j.Phase == ready {
				again = min(again, j.NotBefore)
			}
			if over = over.with(j.Priority); over == allClasses {
				break
			}
			continue // no job of its priority behind it may overtake it
		}
		if j.Phase != ready {
			continue
		}
		if j.NotBefore > now {
			again = min(again, j.NotBefore) // a retry that became ready before its time
			continue
		}
		if j.Past(now) {
			if j.carries { // its members come before the jobs behind it
				over = over.with(j.Priority)
			}
			s.expire(j)
			continue
		}
		if j.isLate(now) || j.isSplit() {
			s.split(q, j)
			over = over.with(j.Priority)
			continue
		}
		if !q.waits.IsMixed() && int64(len(jobs)) >= min(free, maxAsks) {
			break
		}
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 || free <= 0 {
		return again
	}
	if hold := s.Holds.of(q); hold > now {
		return hold // a slot before that could not be used
	}
	// A queue that took a turn before it can ask would pass the turn on and take it again without end.
	if q.askAt > now {
		return q.askAt
	}
	if slot := s.policy.slot(q.Limits, q.TAT, now, 1); slot > now.Add(s.Pipe.pace.ReserveAhead) {
		return slot.Add(-s.Pipe.pace.ReserveAhead)
	}
	if next, may := s.mayAsk(q, jobs); !may {
		return min(again, next)
	}
	jobs, turn := s.inTurn(q, jobs, slow)
	if len(jobs) == 0 {
		return again // the turn may never come: jobs that wait for it may be withdrawn
	}
	jobs = jobs[:min(int64(len(jobs)), free, maxAsks)]
	jobs = jobs[:s.turn(q, jobs)]
	for _, j := range jobs {
		j.Phase = asking
		s.Pipe.exit.enter(j)
	}
	service := s.Shared.ServiceTime(jobs[0].Costs)
	s.turns.Take(q, turn, service, len(jobs))
	ask := bucket.Ask{
		Key: q.Key, Limits: *q.Limits, Costs: jobs[0].Costs, Want: len(jobs), Horizon: s.Pipe.pace.ReserveAhead,
		Tenant: q.seats.Tenant(turn), Priority: turn, Service: bucket.Micros(s.Shared.ServiceAtStore(jobs[0].Costs, service)),
	}
	if q.cold {
		ask.Floor = s.At(s.now).Floor(q)
	}
	s.fx.Asks = append(s.fx.Asks, ask)
	s.fx.asked = append(s.fx.asked, jobs)
	return Never // the answer touches the queue
}

// isSlow reports whether a key has jobs of several priorities, and its own limits let only one call go now. Then the
// key's own order decides which of its jobs is made ready and called, whichever priority's turn the key has at shared
// limits. Otherwise the shared turns would decide which calls of a slow key are made: if other keys have only high
// jobs, the low jobs would get all calls of this key.
func (s *step) isSlow(q *KeyQueue, free int64) bool {
	return q.waits.IsMixed() && (free <= 1 || s.policy.slot(q.Limits, q.TAT, s.now, 2) > s.now.Add(s.Pipe.pace.ReserveAhead))
}

// ownTurns gives each job that has no slot the turn of its own priority, unless its key is slow. Otherwise jobs of one
// priority would take turns of other priorities too, and overtake each other.
func (s *step) ownTurns(q *KeyQueue) {
	if free, _ := q.free(s.now); !q.waits.IsMixed() || s.isSlow(q, free) {
		return
	}
	for _, j := range q.Jobs {
		if (j.Phase == staging || j.Phase == ready) && j.turn != j.Priority {
			s.Pipe.without(j, -1)
			j.turn = j.Priority
			s.Pipe.without(j, 1)
		}
	}
}

// inTurn returns the ready jobs for which a queue may ask now, and the priority whose turn they all take. While queues
// wait to ask, this queue needs a turn of a priority of which it has jobs. If it has none, it waits for a turn of each
// such priority.
func (s *step) inTurn(q *KeyQueue, jobs []*Job, slow bool) (now []*Job, turn bucket.Priority) {
	several := q.waits.IsMixed()
	may := !s.Pipe.isFull() && !s.gate.isShut(s.now) && !s.store.isAsked()
	for rest := jobs; len(rest) > 0; rest = without(rest, turn) {
		next := rest[0]
		if several {
			if i := slices.IndexFunc(rest, func(j *Job) bool { return q.seats.State(j.turn).HasTurn }); i >= 0 {
				next = rest[i]
			}
		}
		turn = next.turn
		if may && (s.turns.Asking() == 0 || q.seats.State(next.turn).HasTurn) {
			switch {
			case slow:
				jobs[0].turn, next.turn = turn, jobs[0].turn
				return jobs[:1], turn
			case s.turns.InRow(q, turn) > 0:
				return only(jobs, turn), turn
			}
			return run(jobs[slices.Index(jobs, next):]), turn
		}
		if s.turns.Wait(q, turn); !several {
			break
		}
	}
	return nil, turn
}

// run returns the first jobs that all take the same turn. It stops at a job that takes another turn, because that job
// must get its slot before the jobs behind it.
func run(jobs []*Job) []*Job {
	if i := slices.IndexFunc(jobs, func(j *Job) bool { return j.turn != jobs[0].turn }); i >= 0 {
		return jobs[:i]
	}
	return jobs
}

// only returns the jobs that take the turn of a priority, and without returns all other jobs.
func only(jobs []*Job, of bucket.Priority) []*Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *Job) bool { return j.turn != of })
}

func without(jobs []*Job, of bucket.Priority) []*Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(j *Job) bool { return j.turn == of })
}

// plentyAfter is how long no shared limit must have refused anything before a turn may be more than one call.
const plentyAfter = time.Second

// turn returns how many of its ready jobs a queue asks for at once. Under a shared limit keys take turns of one call
// each. A store on another machine would then give a key one call for each round trip, however much of the limit is
// free. So if no limit has refused anything lately, the queues that ask or wait divide the asks of a whole round trip
// among themselves.
//
// While several priorities wait, a queue asks for as many calls as its priority may make before the next turn of
// another one. Otherwise the priorities would share a round of several grants evenly, whatever their weights.
func (s *step) turn(q *KeyQueue, jobs []*Job) int {
	most, row := min(len(jobs), s.Pipe.exit.room()), s.turns.InRow(q, jobs[0].turn)
	if row > 0 {
		most = min(most, row)
	}
	switch {
	case s.Holds.slow(q), s.gate.replica.Any():
		return 1
	case len(s.Shared) == 0:
		return most
	case s.store.clock == OtherClock && s.gate.isPlenty(s.now):
		left := maxAsks
		for _, asked := range s.fx.asked {
			left -= len(asked)
		}
		most = min(most, left/(s.turns.Waiting()+len(s.agenda.active)+1))
	case row == 0:
		return 1
	}
	n := 1
	for n < most && slices.Equal(jobs[n].Costs, jobs[0].Costs) {
		n++
	}
	return n
}

// mayAsk reports whether the governors and the replica's own limits let a queue ask for slots for jobs. If they do not,
// the queue waits in line, or mayAsk returns when the schedule must look at the queue again.
func (s *step) mayAsk(q *KeyQueue, jobs []*Job) (again bucket.Micros, may bool) {
	s.Holds.relax(q, s.policy.Retry.Adaptive, s.now)
	if q.brake.governor != nil {
		if q.Jobs.count(asking, granted) > 0 {
			return Never, false // one at a time: its call will touch the queue
		}
		if at := q.brake.earliest(); at > s.now {
			return at, false
		}
	}
	slow, may := s.Holds.governor.slows(), s.mayAskReplica()
	if !slow && may {
		return 0, true
	}
	if at := s.Holds.governor.earliest(); slow && at > s.now {
		s.gate.shut(slowed, max(s.gate.opens, at))
	}
	if s.gate.isShut(s.now) || len(s.fx.Asks) > 0 {
		for _, j := range jobs {
			s.turns.Wait(q, j.turn)
		}
		return Never, false
	}
	return 0, true
}

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
	// Asking and granted jobs touch q later.
	if free <= 0 && q.Jobs.count(ready) > 0 && q.Jobs.count(asking, granted) == 0 {
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
		most = min(most, left/(s.turns.Waiting()+len(s.Queues.active)+1))
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

// gate says when the store may be asked again for slots under shared limits, and why not earlier: a limit refused a
// job, the api starts slowly after a hold, or the store does not answer. Queues wait for the gate by turns. A key's own
// rate does not shut it.
type gate struct {
	replica limits.Replica // the limits of this process alone

	opens  bucket.Micros // the store must not be asked before then
	by     string        // the limit, or slowed or storeDown; "" after the gate was opened
	scarce bucket.Micros // when a shared limit refused a job last; 0: never

	// Jobs that a shared limit has put off for long, such as a spent budget until midnight. The store may have refused
	// them because of a grant whose units came back just afterwards: a missed slot, or a call that took less than it
	// had asked for.
	putOff   bucket.Micros // the latest time that the store named; 0: no job waits that long
	asked    bucket.Micros // when the last round of asks was sent
	cameBack bucket.Micros // when the store last heard of units that come back
}

// shut keeps the store from being asked before a time.
func (g *gate) shut(by string, until bucket.Micros) { g.by, g.opens = by, until }

// open lets the store be asked at once.
func (g *gate) open() { g.by, g.opens = "", 0 }

// isShut reports whether the store may not be asked yet.
func (g *gate) isShut(now bucket.Micros) bool { return g.opens > now }

// isPlenty reports whether no limit has refused a job for long enough that a turn may be more than one call.
func (g *gate) isPlenty(now bucket.Micros) bool {
	return g.scarce == 0 || now >= g.scarce.Add(plentyAfter)
}

// takePutOff reports whether the jobs that were put off must ask again, because units came back since they asked. It
// returns true only once for the same jobs.
func (g *gate) takePutOff(now bucket.Micros) bool {
	if g.putOff <= now || g.cameBack == 0 || g.cameBack < g.asked {
		return false
	}
	g.putOff = 0
	return true
}

// UnitsCameBack notes that the store now counts some grants with fewer units than they had asked for. It reports
// whether the jobs that a shared limit has put off for long must ask again; the caller must then call AskAgain for
// every queue.
func (s *Schedule) UnitsCameBack(now bucket.Micros) (putOff bool) {
	s.gate.cameBack = now
	return s.gate.takePutOff(now)
}

// AskAgain makes a queue that a shared limit refused ask again, because the limit may open at another time than the
// store said: its period begins at another time, or units came back.
func (s *Schedule) AskAgain(q *KeyQueue, now bucket.Micros) {
	if s.Queues.byKey[q.Key] != q {
		return // it has been dropped since
	}
	if s.Shared.Have(s.gate.by) {
		s.gate.open()
	}
	q.Jobs.rouse(now)
	s.Queues.Touch(q)
}

// PermitFreed lets the store be asked at once if a limit on calls in flight has shut the gate. The store may have a
// free permit of that limit again.
func (s *Schedule) PermitFreed() {
	if s.turns.Waiting() > 0 && s.Shared.AreInFlight(s.gate.by) {
		s.gate.opens = 0
	}
}

// mayAskReplica reports whether this replica's own limits let the schedule ask for one call. If a limit is used up, it
// shuts the gate until the limit opens.
func (s *step) mayAskReplica() bool {
	if !s.gate.replica.Any() {
		return true
	}
	if at, limit := s.gate.replica.Opens(s.now, s.Pipe.underWay(), 0); at > s.now {
		if at > s.gate.opens {
			s.gate.shut(limit, at)
		}
		return false
	}
	return len(s.fx.Asks) == 0
}

// TakeReplica counts an inquiry in this replica's own limits and returns 0. until is the latest time of the inquiry's
// slot. If the limits do not let the inquiry pass, TakeReplica counts nothing. It then returns when they will, and the
// name of the limit that opens last. The caller must call EndReplica when the inquiry has ended or was not made. A call
// for which a job has asked the store goes first.
func (s *Schedule) TakeReplica(now, until bucket.Micros) (at bucket.Micros, limit string) {
	if at, limit = s.gate.replica.Opens(now, s.Pipe.underWay(), s.store.rounds); at > now {
		return at, limit
	}
	s.gate.replica.Begin(until, now)
	return 0, ""
}

// EndReplica ends an inquiry that TakeReplica counted with this until. sent says whether it was sent. EndReplica
// reports whether jobs may ask for slots again.
func (s *Schedule) EndReplica(until bucket.Micros, sent bool) (more bool) {
	if s.gate.replica.End(until, sent); sent {
		return s.gate.freed()
	}
	return s.gate.gaveBack()
}

// freed opens the gate if this replica's own limit of calls at once has shut it, because that limit may have room
// again. It reports whether the limit had shut it.
func (g *gate) freed() bool {
	if _, inFlight := g.replica.Has(g.by); g.opens == 0 || !inFlight {
		return false
	}
	g.opens = 0
	return true
}

// gaveBack opens the gate if any of this replica's own limits has shut it, because a slot came back to them. It
// reports whether one of them had.
func (g *gate) gaveBack() bool {
	if is, _ := g.replica.Has(g.by); g.opens == 0 || !is {
		return false
	}
	g.opens = 0
	return true
}

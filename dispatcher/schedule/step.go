package schedule

import (
	"cmp"
	"slices"
	"strings"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// step is one Step of a schedule: it advances queues at the time now, and gathers what the dispatcher must do.
type step struct {
	*Schedule
	now bucket.Micros
	fx  Effects // a value, so that a step lives on the stack
}

// run does all that can be done.
func (s *step) run() {
	for q := s.Queues.due(s.now); q != nil; q = s.Queues.due(s.now) {
		s.Queues.Touch(q)
	}
	ended, shared := s.Holds.end(s.now)
	s.fx.Shared = shared
	for range ended {
		s.fx.Resumed = append(s.fx.Resumed, nil)
	}
	s.fx.Recall, s.Pipe.polling.cancelled = s.Pipe.polling.cancelled, nil
	for s.Queues.canLapse() {
		s.advance(s.Queues.nextLapsing())
	}
	for s.looks.canGoOn(&s.Pipe) {
		s.advance(s.looks.pop())
	}
	// n bounds the loop, because a queue that yields waits for room again.
	for n := s.turns.RoomWaiting(); n > 0 && s.turns.RoomWaiting() > 0 && s.Pipe.hasRoom(&s.Holds.breaker) && len(s.fx.Asks) < maxAsks; n-- {
		s.advance(s.turns.ToRoom())
	}
	for n := len(s.Queues.active); n > 0 && len(s.fx.Asks) < maxAsks; n-- {
		s.advance(s.Queues.next())
	}
	s.unblock()
	s.invite()
	s.fx.Unclaim = s.Findings.endsClaim(s.now)
	if len(s.fx.Asks) > 0 {
		s.store.ask()
		if s.Pipe.pace.sharesStore(&s.policy.Rules) && len(s.Shared) > 0 {
			s.standInLine()
		}
	}
}

// standInLine adds to each ask how many keys wait here, so that the store can give every process its turns.
func (s *step) standInLine() {
	line := &bucket.Line{Replica: s.Pipe.pace.Replica, Held: s.Holds.governor.slows(), Weights: s.policy.Rules.Weights}
	if in := s.policy.Rules.In; in != nil {
		line.API, line.Weight = in.API, in.Weight
		line.Replica = cmp.Or(line.Replica, in.API)
	}
	keys, all := s.turns.Coming()
	for _, jobs := range s.fx.asked {
		seats, turn := &jobs[0].Queue.seats, jobs[0].turn
		waited, waits := seats.Comes(turn)
		if waited {
			continue
		}
		keys[bucket.Waiting{Tenant: seats.Tenant(turn), Priority: turn}]++ // the queue asks without having waited
		if !waits {
			all++
		}
	}
	if s.turns.AreShared() {
		line.Keys = all
	}
	if line.More = len(keys); line.More <= bucket.MostTenants {
		line.More = 0
		for of, n := range keys {
			of.Keys = n
			line.Tenants = append(line.Tenants, of)
		}
		slices.SortFunc(line.Tenants, func(a, b bucket.Waiting) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Tenant, b.Tenant))
		})
	}
	for i := range s.fx.Asks {
		s.fx.Asks[i].Line = line
	}
}

// unblock lets the queues ask whose turn comes in this round, in the order of their turns. It runs after the queues
// that were just granted a slot have taken their new places in the line. The work for one freed slot must not grow with
// the number of keys that wait for it. A queue with a costly call ends the round: cheaper calls behind it would forever
// take the units for which it waits.
func (s *step) unblock() {
	most := maxAsks
	if s.store.isDown() || s.Holds.governor.slows() || s.gate.replica.Any() {
		// One ask is enough to test whether the store answers again. A slow start and limits of this replica allow only
		// one.
		most = 1
	}
	for ; most > 0 && len(s.fx.Asks) < maxAsks && !s.Pipe.isFull() && !s.gate.isShut(s.now) && !s.store.isAsked(); most-- {
		q, costly, ok := s.turns.ToAsk()
		if !ok {
			return
		}
		if s.advance(q); costly {
			return
		}
	}
}

// invite gives queues the turn to make a job ready, in the order in which they will get the shared limit. It runs last:
// a queue that was just granted a slot has then taken its new place in the line, and does not take the room of the
// queues before it.
func (s *step) invite() {
	if s.now < s.At(s.now).inviteAt() {
		return
	}
	n := s.At(s.now).width() - s.Pipe.staged
	if s.store.isDown() {
		n = min(n, 1)
	}
	for beyond := len(bucket.Priorities); len(s.fx.Asks) < maxAsks; n-- {
		if n <= 0 {
			if beyond--; beyond < 0 || s.store.isDown() || !s.turns.IsFirstOnWay() {
				return
			}
		}
		q, ok := s.turns.ToPrepare()
		if !ok {
			return
		}
		s.advance(q)
	}
}

// advance does all that can be done for one queue and sets its timer.
func (s *step) advance(q *KeyQueue) {
	if s.Holds.endOf(q, s.now) {
		s.fx.Resumed = append(s.fx.Resumed, q)
	}
	s.startDue(q)
	s.cancelDue(q)
	if !q.Partition.Reading { // else the places of due jobs depend on the jobs that are read: see PushEarly
		s.release(q, s.now, q.Partition.newest)
	}
	due := q.nextDue()
	if len(q.Jobs) > 0 {
		due = min(due, q.Jobs.nextStart())
	}
	if !s.drain && !s.barred && q.Partition.Open && !q.Unread {
		due = min(due, s.prepare(q))
	}
	s.turns.Pass(q)
	if len(s.packs.freed) > 0 {
		s.packs.loosen(&s.Queues)
	}
	s.packs.stop(q)
	if q.waits.IsMixed() {
		s.tidy(q)
	}
	if q.Empty() {
		due = min(due, s.memory(q))
	}
	q.holdups.turn(s.causes.of(s.At(s.now).keeps(q)), tickOf(s.now)) // what makes the queue wait from now on
	s.Queues.timers.set(q, due)
	if idle, _ := q.seats.IsIdle(); idle && due == Never && q.Empty() && q.entry.isIdle() && !q.waits.IsMixed() && s.Queues.byKey[q.Key] == q {
		s.turns.Leave(q)
		q.entry.dropped = true
		delete(s.packs.since, q)
		delete(s.Queues.byKey, q.Key) // a queue that is listed elsewhere must remain the only queue of its key
		s.Queues.drop(q)
	}
	s.census.keep(q, q.Empty() && s.Queues.byKey[q.Key] == q)
}

// prepare makes jobs ready and asks for slots, unless something holds the queue. It returns when the schedule must look
// at the queue again.
func (s *step) prepare(q *KeyQueue) (due bucket.Micros) {
	s.lapse(q)
	s.ownTurns(q)
	due = Never
	if hold := s.Holds.of(q); hold > s.now.Add(s.Pipe.pace.PrepareLead) {
		s.withdrawReady(q, hold, allClasses)
		if hold != Never {
			due = s.Pipe.lead(hold)
		}
	} else if may := s.mayGo(q); may != 0 {
		due = min(s.stage(q, may), s.ask(q, may))
	}
	s.look(q)
	return min(due, s.lapse(q)) // another job may be the first now
}

// mayGo returns the priorities of which a queue may make jobs ready and ask for slots. These are the priorities that
// need not wait for a turn.
func (s *step) mayGo(q *KeyQueue) (may classSet) {
	for _, p := range q.waits.Priorities() {
		own, only := q.seats.State(p), classSet(0).with(p)
		far := s.gate.isShut(s.now.Add(limits.LongWait)) && !own.Costly || s.store.isDown() && s.gate.isShut(s.now)
		switch {
		case own.Blocked:
			if own.Preparing { // a job that missed its slot is made ready again in its queue's turn
				s.recall(q, only)
			}
		case !far:
			may = may.with(p)
		case !q.waits.IsMixed() || q.waits.Of(p).HasNext() || q.Jobs.countOf(only, resting, staging, ready, asking) > 0:
			s.withdrawReady(q, s.gate.opens, only)
			s.turns.Wait(q, p) // nothing is made ready for a slot that is far off
		}
	}
	return may
}

// withdrawReady withdraws a queue's ready jobs of some priorities if their slots turned out to be far off. While the
// breaker is not closed, it withdraws all but the probe in any case. Ready jobs would keep other keys' jobs from being
// made ready. If the process died meanwhile, their intents would make them unknown.
func (s *step) withdrawReady(q *KeyQueue, until bucket.Micros, some classSet) {
	far := until > s.now.Add(limits.LongWait)
	if !far && s.Holds.breaker.closed() {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase == ready && some.has(j.turn) && (j != s.Holds.breaker.probe || far) {
			s.withdraw(j, until)
			s.fx.Stale = append(s.fx.Stale, j)
		}
	}
}

// withdraw takes a ready job out of the pipeline, and lets it rest until shortly before a time.
func (s *step) withdraw(j *Job, until bucket.Micros) {
	s.Holds.breaker.letGo(j)
	s.suspects.clear(j, &s.Queues)
	s.Pipe.unstage(j, resting)
	j.NotBefore, j.limited = s.Pipe.lead(until), true
	j.unload()
	s.packs.dissolve(j)
}

// recall withdraws a queue's ready jobs of some priorities. They are made ready again as soon as possible.
func (s *step) recall(q *KeyQueue, some classSet) {
	for _, j := range q.Jobs {
		if j.Phase == ready && some.has(j.turn) {
			s.withdraw(j, s.now)
			s.fx.Stale = append(s.fx.Stale, j)
		}
	}
}

// memory returns the time until which a queue without jobs must be kept. There are four reasons to keep it: the store
// does not know its pace yet, it is held, calls of the former owner may still run, or pushback has lowered its rate.
// memory returns Never if nothing must be remembered.
func (s *step) memory(q *KeyQueue) bucket.Micros {
	a := s.policy.Retry.Adaptive
	s.Holds.relax(q, a, s.now)
	until := max(q.brake.held, q.untold())
	if q.Orphaned > 0 {
		until = max(until, q.Partition.Leftover)
	}
	if g := q.brake.governor; g != nil && g.ceiling != 0 && a != nil {
		until = max(until, s.now.Add(a.Recover/16)) // then memory is called again
	}
	if until <= s.now {
		return Never
	}
	return until
}

// lapse ends those next jobs of a queue whose deadlines have passed: resting jobs, ready jobs without a slot, and the
// first waiting jobs of each priority, up to one that has time left. To end a job takes no slot, no intent and no
// probe. lapse returns when the next deadline passes. If the queue is paused, held, or waits for a limit that is far
// off, this is the only time at which the schedule looks at it.
func (s *step) lapse(q *KeyQueue) (next bucket.Micros) {
	next = Never
	for _, j := range q.Jobs {
		switch {
		case j.Deadline == 0 || j.cancelled || j.Phase != resting && j.Phase != ready:
		case j.Deadline > s.now:
			next = min(next, j.Deadline)
		case s.Queues.mayLapse(q):
			if j.Phase == ready {
				s.expire(j)
			} else {
				s.expireWaiting(j)
			}
		default:
			return Never
		}
	}
	for _, of := range q.waits.Priorities() {
		b := q.waits.Of(of)
		for p, ok := b.Next(); ok; p, ok = b.Next() {
			at, timed := q.Partition.deadlines[p.Seq]
			if !timed || at > s.now {
				if timed {
					next = min(next, at)
				}
				break
			}
			if !s.Queues.mayLapse(q) {
				return Never
			}
			s.turns.Goes(of, 1)
			s.expireWaiting(q.begin(q.waits.Drop(of)))
		}
	}
	return next
}

// expireWaiting ends a job whose message is not loaded.
func (s *step) expireWaiting(j *Job) {
	j.Phase = settling
	s.Queues.lapse(j)
	s.fx.Expire = append(s.fx.Expire, j)
}

// expire ends a job that is ready.
func (s *step) expire(j *Job) {
	s.Holds.breaker.letGo(j)
	s.Pipe.unstage(j, settling)
	s.packs.dissolve(j)
	s.fx.Expire = append(s.fx.Expire, j)
}

// cancelDue ends those cancelled jobs that are neither being made ready nor asking for a slot.
func (s *step) cancelDue(q *KeyQueue) {
	if !q.cancels {
		return
	}
	q.cancels = false
	for _, j := range q.Jobs {
		if j.isSplit() {
			q.cancels = true
			s.split(q, j)
		}
		if !j.cancelled {
			continue
		}
		switch j.Phase {
		case granted:
			s.giveBack(q, j)
			s.unstage(j)
		case ready:
			s.unstage(j)
		case resting:
			j.Phase = settling
		default:
			q.cancels = true // it ends when it is ready, or is refused its slot
			continue
		}
		j.cancelled = false
		s.fx.Cancel = append(s.fx.Cancel, j)
	}
}

// unstage removes a staging job from the pipeline, or ends the look at a job. It may run while a loop goes over a
// queue's jobs; packs.loosen must run afterwards.
func (s *step) unstage(j *Job) {
	if s.looks.end(j) {
		s.Queues.Touch(j.Queue)
		return
	}
	s.Holds.breaker.letGo(j)
	s.Pipe.unstage(j, settling)
	s.packs.dissolve(j)
	s.Queues.Touch(j.Queue)
}

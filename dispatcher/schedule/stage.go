package schedule

import (
	"cmp"
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
	"weir/dispatcher/schedule/limits"
)

// stage makes those jobs of the priorities in may ready whose slots are near. It returns when the schedule must look at
// the queue again. Jobs of other priorities wait for their turns, or for more jobs of their packs, and take no slot of
// the key from these jobs. In a slow key, each turn makes the job ready that is first in the key's own order.
func (s *step) stage(q *KeyQueue, may classSet) (again bucket.Micros) {
	if len(s.packs.freed) > 0 {
		s.packs.loosen(&s.Queues)
	}
	soon := s.now.Add(s.Pipe.pace.PrepareLead)
	ungranted := int64(q.Jobs.countOf(may, staging, ready) + q.Jobs.count(asking))
	again = Never
	some := allClasses // the priorities whose packs are not being gathered
	for may != 0 {
		j, turn, at := s.candidate(q, soon, may)
		if j == nil && at == Never {
			return again
		}
		of := turn
		if free, _ := q.free(s.now); s.isSlow(q, free) {
			j, of, _ = s.candidate(q, soon, some)
		}
		if s.policy.Packs != nil && at <= soon && s.Holds.breaker.closed() {
			until := s.gathers(q, j, of)
			if until > soon {
				again, some, may = min(again, s.Pipe.lead(until)), some.without(of), may.without(of)
				continue
			}
			at = max(at, until)
		}
		at = max(at, q.brake.earliest(), q.crowded(), s.policy.slot(q.Limits, q.TAT, s.now, int(ungranted)+1))
		if at > soon {
			return min(again, s.Pipe.lead(at))
		}
		n, lent := ungranted+s.Pipe.ahead(q.Jobs, s.now), q.lent(s.now)
		if n >= q.atOnce() || ungranted+int64(q.Jobs.count(granted)) >= maxAsks {
			return again // the end of a call touches the queue
		}
		if n+lent >= q.Limits.InFlight { // so does the end of an operation
			return min(again, q.returned(s.now))
		}
		if own := q.Ungranted(turn); !s.invites(q, turn, own) {
			if own == 0 {
				s.turns.Wait(q, turn)
			}
			may = may.without(turn)
			continue
		}
		room := s.Pipe.hasRoom(&s.Holds.breaker)
		// yields is called later, because it returns true only once for a job: the job must yield when there is a
		// claim.
		if room && !s.Findings.mayProbe() {
			s.fx.Claim, _ = s.Findings.AwaitsProbe()
			return again // Claim touches every queue, and so does each turn of the breaker
		}
		if !room || s.Holds.breaker.yields(j) || s.Holds.breaker.hasTried(j) && q.seats.State(turn).Queued {
			s.turns.AwaitRoom(q, turn)
			return again
		}
		if j == nil {
			j = q.begin(q.waits.Take(of))
			s.turns.Goes(of, 1)
		} else {
			s.turns.Wake(of)
			q.waits.Reach(j.tag)
		}
		j.limited, j.looked = false, false // if it is withdrawn, an answer is looked up again before its next slot
		s.looks.leave(j)
		s.Pipe.stage(j, turn)
		s.Holds.breaker.try(j)
		s.suspects.call(j)
		if s.policy.Packs != nil {
			s.pack(j, at)
		}
		ungranted++
		s.fx.Load = append(s.fx.Load, j)
		if s.turns.RoomWaiting() > 0 {
			s.turns.AwaitRoom(q, turn) // one job for each turn
			return again
		}
	}
	return again
}

// candidate returns the next job to make ready of the priorities in may. j is a resting job, or nil for the first
// waiting job of the priority of. at is the earliest time at which the job itself may be called, Never if there is no
// job. A job that may be called by the time by counts as due.
func (s *step) candidate(q *KeyQueue, by bucket.Micros, may classSet) (j *Job, of bucket.Priority, at bucket.Micros) {
	if !q.waits.IsMixed() {
		j, at = s.candidateOf(q, bucket.Normal, by)
		return j, bucket.Normal, at
	}
	at = Never
	var first backlog.Tag
	for _, p := range bucket.Priorities {
		if !may.has(p) {
			continue
		}
		next, when := s.candidateOf(q, p, by)
		tagged := q.waits.Tag(p)
		if next != nil {
			tagged = next.tag
		}
		sooner := when < at
		if when <= by && at <= by {
			sooner = tagged < first
		}
		if sooner {
			j, of, at, first = next, p, when, tagged
		}
	}
	return j, of, at
}

// candidateOf is candidate for one priority. Retries may be overtaken. A job that the api may not have seen yet may
// not.
func (s *step) candidateOf(q *KeyQueue, of bucket.Priority, by bucket.Micros) (j *Job, at bucket.Micros) {
	at = Never
	passable, awaited := true, false
	var bond string          // of the last bonded job in the loop
	var bonded bucket.Micros // when the pack of that job is due
	for _, rest := range q.Jobs {
		if rest.Priority != of || awaited && rest.First() {
			continue
		}
		if rest.First() && q.waitsBefore(rest) {
			break
		}
		if rest.Phase == settling && rest.Unseen {
			passable = false // the dispatcher is finding out what became of its call
			break
		}
		if rest.awaitsAnswer(s.policy.Reuse) {
			passable, awaited = false, true
			continue
		}
		if rest.Phase != resting {
			continue
		}
		if rest.cancelled && s.policy.Packs != nil { // it has just left its pack, and the next step ends it
			passable = false
			break
		}
		due := rest.NotBefore
		if rest.Bond != nil && s.policy.Packs != nil {
			if rest.Bond.ID != bond {
				bond, bonded = rest.Bond.ID, rest.bondDue()
			}
			due = bonded
		}
		if may := s.suspects.mayCall(rest); may && due < at {
			j, at = rest, due
		}
		if rest.First() {
			passable = false
			break
		}
	}
	if passable && q.waits.Of(of).HasNext() && (at > by || s.Holds.breaker.hasTried(j)) {
		return nil, 0
	}
	return j, at
}

// invites reports whether a queue may make a job of a priority ready now. ungranted is how many jobs of that priority
// it already has on their way to a slot. The queue that has the turn may, and so may any queue while no queue waits for
// a turn. A costly queue may always have one ready job, because the units for which it waits are kept from other
// queues.
func (s *step) invites(q *KeyQueue, of bucket.Priority, ungranted int) bool {
	own := q.seats.State(of)
	if own.Costly && ungranted == 0 || !s.Holds.breaker.closed() {
		return true
	}
	if s.turns.Preparing() > 0 && !own.Invited && !own.HasTurn {
		return false
	}
	if _, onWay := s.turns.Callable(of); own.Invited && s.turns.AreShared() && onWay == 0 {
		return true // see turns.IsFirstOnWay
	}
	width := s.At(s.now).width()
	return width >= s.Pipe.pace.MaxStaged || s.Pipe.staged < width && ungranted < max(1, width/(1+s.turns.Waiting()))
}

// unready withdraws ready jobs that cannot be called next. It withdraws a job if
//   - a former policy made it ready, or the breaker does not let it be called;
//   - a job of its priority before it was never called, and rests or waits for memory: the ready job would take the
//     room that the other needs;
//   - it was never called, and a job of its priority before it awaits an answer: a retry stays ready;
//   - it leads a pack that would overtake a job.
func (s *step) unready(q *KeyQueue) {
	var gap, awaited classSet // priorities whose further jobs cannot be called next, or not for the first time
	for _, j := range q.Jobs {
		first := j.First() // read before withdraw takes the members away
		if j.Phase == ready && (gap.has(j.Priority) || awaited.has(j.Priority) && first || j.Policy != s.policy ||
			!s.Holds.breaker.mayCall(j) || q.Jobs.overtakes(j)) {
			s.withdraw(j, s.now)
			s.Queues.Touch(q)
			s.fx.Stale = append(s.fx.Stale, j)
		}
		switch {
		case j.awaitsAnswer(s.policy.Reuse):
			awaited = awaited.with(j.Priority)
		case first && !awaited.has(j.Priority) && (j.Phase == resting || j.Phase == staging && j.Cramped):
			gap = gap.with(j.Priority)
		}
	}
}

// unstick withdraws a queue's ready jobs if its running calls take longer than LongWait and no further call may start
// beside them. The ready jobs would take room from other queues.
func (s *step) unstick(q *KeyQueue) {
	if q.Jobs.count(ready) == 0 || q.Jobs.count(granted, asking) > 0 || q.Jobs.newest().Add(limits.LongWait) > s.now {
		return
	}
	if free, _ := q.free(s.now); free <= 0 {
		s.recall(q, allClasses)
	}
}

// startDue starts granted calls that are due. If a slot was missed, it also gives back the queue's later slots. It
// gives back the newest first, so that the store can take back all of them.
func (s *step) startDue(q *KeyQueue) {
	if q.slipped != 0 {
		if first := firstGranted(q); first != nil {
			s.giveBack(q, first)
		}
		q.takeSlip()
		q.passed = q.Jobs.count(asking) > 0
	}
	if q.Jobs.sending() {
		return
	}
	for _, j := range q.inSlots() {
		if j.Phase != granted || j.At > s.now {
			continue
		}
		if j.leaving && s.now > s.store.latest(j) {
			s.Pipe.exit.missed(j.At, s.now)
		}
		if s.drain || s.barred || j.cancelled || j.missed || s.now > s.store.latest(j) ||
			s.Holds.of(q) > s.now || !s.Holds.breaker.mayCall(j) || s.Holds.outdated(j) {
			s.giveBack(q, j)
			return
		}
		if j.Past(s.now) {
			s.giveBack(q, j)
			s.expire(j)
			return
		}
		if j.isLate(s.now) || j.isSplit() {
			s.split(q, j)
			return
		}
		s.Pipe.start(j)
		s.Shared.Begin(&j.Call, s.now)
		s.fx.Start = append(s.fx.Start, j)
		if j.Unsent = s.policy.interval(q.Limits) >= steadyFrom; j.Unsent {
			return
		}
	}
}

// steadyFrom is the shortest interval of a key at which a call waits until the call before it has left: a machine that
// is busy for some milliseconds must not let two calls leave together. At shorter intervals the jitter is larger than
// the interval anyway.
const steadyFrom = time.Millisecond

// giveBack gives back the grants of the queue's jobs from first on, the last one first.
func (s *step) giveBack(q *KeyQueue, first *Job) {
	slots := q.inSlots()
	for _, j := range slices.Backward(slots[slices.Index(slots, first):]) {
		if j.Phase != granted {
			continue
		}
		s.fx.Unused = append(s.fx.Unused, bucket.Use{Key: q.Key, Grant: j.Grant, Costs: j.Costs, Returned: true})
		s.Shared.Release(&j.Call)
		s.gate.replica.GiveBack(j.At)
		s.Pipe.exit.leave(j)
		s.Pipe.without(j, 1)
		j.Phase, j.missed = ready, false
		s.Forfeited++
		q.TAT = j.At
	}
	q.passed = q.Jobs.count(asking) > 0
	s.gate.gaveBack()
}

// inSlots returns the queue's jobs, with those that have slots in the order of their slots. If all jobs are normal,
// q.Jobs is in this order. Otherwise slots are granted to priorities in any order, and only the jobs of one priority
// get them in their order.
func (q *KeyQueue) inSlots() []*Job {
	if !q.waits.IsMixed() {
		return q.Jobs
	}
	jobs := slices.Clone(q.Jobs)
	slices.SortStableFunc(jobs, func(a, b *Job) int { return cmp.Compare(a.At, b.At) })
	return jobs
}

// firstGranted returns the job of a queue that has the first slot, nil if none has one.
func firstGranted(q *KeyQueue) *Job {
	for _, j := range q.inSlots() {
		if j.Phase == granted {
			return j
		}
	}
	return nil
}

// An api may give equal jobs one answer (Policy.Reuse). The dispatcher knows which jobs are equal, and which answers
// there are. The looks decide when the dispatcher looks up an answer for a job. It does so when the job is made ready.
// It does so earlier if a queue's next job has to wait for its slot, because the job may not need one. The job keeps
// its place: of a queue's jobs of one priority, only the first that was never called is looked at, and no other one
// overtakes it.
//
// If an equal job is being called, a job waits for that job's answer. Meanwhile it keeps its place too, and takes no
// slot and no room.

// Bounds of looks.
const (
	maxLooking = 64     // jobs that are looked at at the same time: the dispatcher loads each
	maxAhead   = 16_384 // jobs that were looked at before their slot and wait for it: a kilobyte each
)

// looks counts the jobs that are being looked at, and lists the queues that wait for a look, each once.
type looks struct {
	waiting []*KeyQueue
	running int
	ahead   int // jobs that were looked at and wait for their slots
}

// hasRoom reports whether another job may be looked at.
func (l *looks) hasRoom(p *Pipeline) bool { return l.running < maxLooking && !p.settlesMany() }

// canGoOn reports whether a queue that waited for a look may have one.
func (l *looks) canGoOn(p *Pipeline) bool { return len(l.waiting) > 0 && l.hasRoom(p) }

// push makes a queue wait for a look.
func (l *looks) push(q *KeyQueue) {
	if !q.entry.looks {
		q.entry.looks = true
		l.waiting = append(l.waiting, q)
	}
}

// pop takes the queue that has waited longest. At least one must be waiting.
func (l *looks) pop() *KeyQueue {
	q := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	q.entry.looks = false
	return q
}

// begin begins a look at a job.
func (l *looks) begin(j *Job) {
	j.Phase, j.looked, j.answered = looking, true, false
	l.running++
	if !j.ahead {
		j.ahead = true
		l.ahead++
	}
}

// end ends a look. It returns false if the job was not being looked at.
func (l *looks) end(j *Job) bool {
	if j.Phase != looking {
		return false
	}
	j.Phase = settling
	l.running--
	return true
}

// leave stops counting a job among those that were looked at and wait for their slots.
func (l *looks) leave(j *Job) {
	if j.ahead {
		j.ahead = false
		l.ahead--
	}
}

// look lets the dispatcher look up an answer for the queue's next job of each priority, unless it has done so already.
func (s *step) look(q *KeyQueue) {
	if !s.policy.Reuse || s.Holds.IsPaused(q) {
		return
	}
	for _, p := range q.waits.Priorities() {
		s.lookOf(q, p)
	}
}

func (s *step) lookOf(q *KeyQueue, of bucket.Priority) {
	j := q.nextFirst(of)
	switch {
	case j == nil && !q.waits.Of(of).HasNext():
		return
	case j != nil && (j.Phase != resting || j.looked || j.cancelled || j.Calls > 0 || !j.limited && !j.answered && j.NotBefore > s.now):
		return
	case s.looks.ahead >= maxAhead && (j == nil || !j.answered):
		return // an answer is looked up when the job is made ready
	case !s.looks.hasRoom(&s.Pipe):
		s.looks.push(q)
		return
	}
	if j == nil {
		j = q.begin(q.waits.TakeAhead(of))
		s.turns.Goes(of, 1)
	}
	s.looks.begin(j)
	s.fx.Look = append(s.fx.Look, j)
}

// awaiting returns the queue's next job if this job waits for an equal job's answer, and the next jobs of all other
// priorities do, too. Otherwise it returns nil.
func (q *KeyQueue) awaiting() (first *Job) {
	for _, p := range q.waits.Priorities() {
		switch j := q.nextFirst(p); {
		case j == nil && !q.waits.Of(p).HasNext():
		case j == nil || j.Phase != resting || j.awaits == "":
			return nil
		case first == nil || j.spot().Compare(first.spot()) < 0:
			first = j
		}
	}
	return first
}

// Look is what a look at a job found. The zero Look says that no answer was found.
type Look struct {
	Awaits   string // names the equal job for whose answer the job must wait
	Answered bool   // there is an answer, and the job must not end yet
}

// Looked reports what was found for a job that was looked at, or was being made ready. Without an answer the job waits
// for its slot. If it awaits an equal job, it waits for that job's answer. If it is answered, it waits until it is its
// queue's next job.
func (s *Schedule) Looked(j *Job, found Look) {
	s.Unstage(j)
	s.Rest(j, j.NotBefore)
	switch {
	case found.Awaits != "":
		j.awaits, j.looked = found.Awaits, true
	case found.Answered:
		j.looked, j.answered = false, true
	}
}

// Waken ends a job's wait for an equal job's answer. If again is true, there is an answer, and the job is looked at
// again.
func (s *Schedule) Waken(j *Job, again bool) {
	j.awaits, j.looked = "", j.looked && !again
	s.Queues.Touch(j.Queue)
}

// Forgo ends a job that was looked at, or was being made ready, with an earlier answer: the job is settling from now
// on. Forgo returns false and changes nothing if an operator has cancelled the job or paused its key, or if a job of
// its priority before it has not begun its first call. The job must then await its turn.
func (s *Schedule) Forgo(j *Job) bool {
	if j.cancelled || s.Holds.IsPaused(j.Queue) || j.Queue.nextFirst(j.Priority) != j {
		return false
	}
	s.Unstage(j)
	s.Pipe.forgo(j)
	j.Queue.waits.Forgo(j.Priority, j.tag)
	return true
}

// LooksAhead reports whether an answer is being looked up for the job before its slot is near. It is false while the
// job is made ready.
func (j *Job) LooksAhead() bool { return j.Phase == looking }

// awaitsAnswer reports whether a job must not be made ready, because it is being looked at, waits for an answer, or
// ends with one. reuse says that jobs may end with the answer of an equal job. Meanwhile the jobs of its priority
// behind it get no first call. Those that were called before may be called again. The job may even wait for the answer
// of one of them, if its own first call was taken back.
func (j *Job) awaitsAnswer(reuse bool) bool {
	return j.Phase == looking || j.Phase == resting && (j.awaits != "" || j.answered && reuse)
}

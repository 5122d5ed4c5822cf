package schedule

import (
	"iter"
	"maps"
	"time"

	"weir/bucket"
)

// Pace holds the times and bounds of a schedule.
type Pace struct {
	PrepareLead  time.Duration // how long before its slot a job is made ready
	ReserveAhead time.Duration // how long before its time a slot is asked for
	GrantTTL     time.Duration // how long after its time a slot may still be used
	Clock        StoreClock    // the clock by which the store counts

	MaxStaged int // jobs made ready at once, over all keys
	MaxCalls  int // calls running at once, over all keys
}

// Schedule decides which call may start when. It is a plain value: time comes in as now, and what must be done
// comes out as Effects. Its owner locks it.
type Schedule struct {
	pace   Pace
	policy *Policy       // the policy that makes jobs ready
	rules  *bucket.Rules // of the policy
	drain  bool          // nothing new may start
	barred bool          // this process may not call now
	store  storeLink
	byKey  map[string]*KeyQueue

	// What must be done.
	timers   timers
	active   []*KeyQueue // queues with something to do now
	lapses   lapses
	turns    turns
	lately   lately // how many jobs were granted a slot
	gate     gate
	shared   sharedLimits
	suspects suspects

	// What holds calls.
	paused   pauses
	held     bucket.Micros // no call of the api before then
	why      string
	heldKeys map[*KeyQueue]struct{} // keys with a hold that may still last
	pushes   int16                  // pushbacks in a row
	spent    bucket.Micros          // when a spent budget begins anew; 0: none is spent
	spentBy  string                 // its name
	breaker  breaker                // of the api
	tried    bucket.Micros          // when the breaker's probe was last brought forward
	welcome  bucket.Micros          // start of the last call that the api answered without fault or pushback
	governor governor               // of the api, if pushback holds it

	// What was seen lately.
	took     time.Duration // to make a job ready
	callTime time.Duration // usual duration of the api's calls
	habit    time.Duration // 0 until a call has ended
	causes   causes        // of queues' waits

	// Counts.
	unfinished int    // jobs that have not ended
	early      int    // of the unfinished, jobs that must not be called yet
	kept       int    // queues without jobs
	staged     int    // jobs from staging to granted
	calls      int    // jobs calling
	settling   int    // calls that ended and whose outcome is not stored yet
	arrived    uint64 // jobs that came since this began, without those that stood in a partition when it was read
	ended      uint64 // calls that have ended since
	Forfeited  int64  // slots that were given back
}

// New returns a schedule without jobs. tatOf returns the theoretical arrival time that the store knows of a key,
// by the store's clock, 0 if none.
func New(policy *Policy, p Pace, tatOf func(key string) bucket.Micros) *Schedule {
	s := &Schedule{pace: p, policy: policy, rules: &policy.Rules, byKey: map[string]*KeyQueue{}, heldKeys: map[*KeyQueue]struct{}{}, store: storeLink{clock: p.Clock, tatOf: tatOf}}
	s.paused.keys = map[string]Pause{}
	s.callTime = time.Second // until it is known
	s.causes = firstCauses()
	s.shared = newSharedLimits(policy)
	s.turns.reset()
	return s
}

// Effects are what the dispatcher must do after a step.
type Effects struct {
	Load    []*Job      // load their messages, store their intents, then call Loaded
	Start   []*Job      // call now
	Expire  []*Job      // their deadline has passed
	Cancel  []*Job      // an operator cancelled them
	Resumed []*KeyQueue // their hold is over; nil stands for the api
	Stale   []*Job      // made ready in vain: they rest, and become ready again later
	Unused  []bucket.Use
	Asks    []bucket.Ask
	asked   [][]*Job // the jobs each ask is for
}

// Queue returns the key's queue, and makes it if there is none.
func (s *Schedule) Queue(key string, p *Partition) *KeyQueue {
	q := s.byKey[key]
	if q == nil {
		q = &KeyQueue{Key: key, Partition: p, place: notTimed, Limits: s.LimitsOf(key), TAT: s.KnownTAT(key)}
		q.cold = q.TAT != 0 // it may come from the ledger of a former process, whose slots the store does not know
		_, q.paused = s.paused.keys[key]
		s.turns.join(q, s.rules.Tenant(key))
		s.byKey[key] = q
	}
	return q
}

// LimitsOf returns a key's limits. All keys without an override share one value.
func (s *Schedule) LimitsOf(key string) *bucket.KeyLimits {
	if len(s.rules.Overrides) == 0 {
		return &s.rules.Key
	}
	limits := s.rules.For(key)
	return &limits
}

// Touch marks a queue as having something to do.
func (s *Schedule) Touch(q *KeyQueue) {
	if q.seat.tenant == nil {
		return // the queue was dropped without jobs: a reference kept elsewhere, as by a suspect's turn, has no effect
	}
	if !q.inTurn {
		q.inTurn = true
		s.active = append(s.active, q)
	}
}

// Push takes in a job that may be called at once. If its key has jobs that may not, the caller must use
// PushEarly.
func (s *Schedule) Push(key string, seq uint64, p *Partition) *KeyQueue {
	p.newest = max(p.newest, seq)
	q := s.Queue(key, p)
	q.Enqueue(seq)
	s.arrive(q)
	s.unfinished++
	s.countKept(q)
	s.Touch(q)
	return q
}

// arrive counts a job that came just now. Jobs found when a partition is read came before.
func (s *Schedule) arrive(q *KeyQueue) {
	if !q.Partition.Reading {
		q.arrived++
		s.arrived++
	}
}

// Allow says whether calls may start. While they may not, granted slots are given back when they come due, and
// nothing is made ready or asked for.
func (s *Schedule) Allow(may bool) {
	if s.barred == !may {
		return
	}
	s.barred = !may
	s.touchAll()
}

// Step does all that can be done at now.
func (s *Schedule) Step(now bucket.Micros) Effects {
	var fx Effects
	for s.timers.next() <= now {
		q := s.timers[0]
		s.timers.set(q, Never)
		s.Touch(q)
	}
	if s.held != 0 && s.held <= now {
		s.held = 0
		s.governor.restart(now)
		fx.Resumed = append(fx.Resumed, nil)
	}
	if s.spent != 0 && s.spent <= now {
		s.spent = 0
		fx.Resumed = append(fx.Resumed, nil)
	}
	s.unblock(now)
	s.invite(now)
	for s.lapses.goOn() {
		s.advance(s.lapses.next(), now, &fx)
	}
	for n := s.turns.room.size; n > 0 && s.turns.room.size > 0 && s.room() && len(fx.Asks) < maxAsks; n-- { // take a queue that yields only once
		s.advance(s.turns.room.pop(), now, &fx)
	}
	for n := len(s.active); n > 0 && len(fx.Asks) < maxAsks; n-- {
		q := s.active[0]
		s.active[0] = nil
		s.active = s.active[1:]
		q.inTurn = false
		s.advance(q, now, &fx)
	}
	if len(fx.Asks) > 0 {
		s.store.rounds++
	}
	return fx
}

// advance moves one queue as far as it goes at now and sets its timer.
func (s *Schedule) advance(q *KeyQueue, now bucket.Micros, fx *Effects) {
	if q.held != 0 && q.held <= now {
		q.held = 0
		delete(s.heldKeys, q)
		q.restart(now)
		fx.Resumed = append(fx.Resumed, q)
	}
	s.startDue(q, now, fx)
	s.cancelDue(q, fx)
	s.ripen(q, now)
	due := q.nextDue()
	if len(q.Jobs) > 0 {
		due = min(due, s.nextStart(q))
	}
	if !s.drain && !s.barred && q.Partition.Open && !q.Unread {
		s.lapse(q, now, fx)
		hold := s.heldUntil(q)
		switch {
		case hold > now.Add(s.pace.PrepareLead):
			s.withdrawReady(q, hold, now, fx)
			if hold != Never {
				due = min(due, hold.Add(-s.pace.PrepareLead))
			}
		case q.seat.blocked:
			s.unslot(q, now, fx)
		case s.gate.opens > now.Add(LongWait) && !q.seat.costly, s.store.failures > 0 && s.gate.opens > now:
			s.withdrawReady(q, s.gate.opens, now, fx)
			s.turns.wait(q) // nothing is made ready for a slot that is far
		default:
			due = min(due, s.stage(q, now, fx), s.ask(q, now, fx))
		}
		due = min(due, s.lapse(q, now, fx)) // another job may be the first now
	}
	s.turns.pass(q)
	if q.Empty() {
		due = min(due, s.memory(q, now))
	}
	s.notice(q, now)
	s.timers.set(q, due)
	if due == Never && q.Empty() && !q.inTurn && !q.lapses && q.seat.isIdle() && s.byKey[q.Key] == q {
		s.turns.leave(q)
		delete(s.byKey, q.Key) // a queue that is still listed somewhere must stay the key's only one
	}
	s.countKept(q)
}

// countKept counts the queues that are kept without jobs, for what they remember of their key.
func (s *Schedule) countKept(q *KeyQueue) {
	kept := q.Empty() && s.byKey[q.Key] == q
	switch {
	case kept && !q.kept:
		s.kept++
	case !kept && q.kept:
		s.kept--
	}
	q.kept = kept
}

// withdrawReady withdraws a queue's ready jobs if the time that they wait for turned out to be far off. They
// would keep other keys' jobs from being made ready, and their intents would make them unknown if the process
// died meanwhile.
func (s *Schedule) withdrawReady(q *KeyQueue, until, now bucket.Micros, fx *Effects) {
	if until <= now.Add(LongWait) && s.breaker.closed() {
		return
	}
	for _, j := range q.Jobs {
		if j.Phase == ready && (j != s.breaker.probe || until > now.Add(LongWait)) {
			s.withdraw(j, until)
			fx.Stale = append(fx.Stale, j)
		}
	}
}

// stage makes jobs ready whose slots are near, and returns when to look again.
func (s *Schedule) stage(q *KeyQueue, now bucket.Micros, fx *Effects) (again bucket.Micros) {
	interval := s.rules.Interval(q.Limits.Rate)
	ungranted := int64(q.ungranted())
	for {
		j, at := s.candidate(q, now.Add(s.pace.PrepareLead))
		if j == nil && at == Never {
			return Never
		}
		at = max(at, q.earliest(), q.crowded(), bucket.Forecast(*q.Limits, interval, q.TAT, now, int(ungranted)+1))
		if at > now.Add(s.pace.PrepareLead) {
			return at.Add(-s.pace.PrepareLead)
		}
		if ungranted+s.ahead(q, now) >= q.atOnce() {
			return Never // a call of this queue that ends will touch it
		}
		if !s.invites(q, ungranted, now) {
			if ungranted == 0 {
				s.turns.wait(q)
			}
			return Never
		}
		if !s.room() {
			s.turns.room.push(q)
			return Never
		}
		if j != nil && s.breaker.yields(j) {
			s.turns.room.push(q)
			return Never
		}
		if j == nil {
			j = q.dequeue()
		}
		j.Phase, j.limited = staging, false
		if !s.breaker.closed() {
			s.breaker.probe = j
		}
		s.suspects.call(j)
		s.staged++
		ungranted++
		fx.Load = append(fx.Load, j)
		if s.turns.room.size > 0 {
			s.turns.room.push(q) // a job a turn
			return Never
		}
	}
}

// candidate returns the next job to make ready: a resting job, or nil for the oldest waiting job. at is the
// earliest time of its call, as far as the job itself goes; Never if there is no job. Retries may be overtaken;
// a job that the api may not have seen yet may not.
func (s *Schedule) candidate(q *KeyQueue, by bucket.Micros) (j *Job, at bucket.Micros) {
	at = Never
	passable := true
	for _, rest := range q.Jobs {
		if rest.Phase == settling && rest.Unseen {
			passable = false // the dispatcher is finding out what became of its call
			break
		}
		if rest.Phase != resting {
			continue
		}
		if may := s.suspects.mayCall(rest); may && rest.NotBefore < at {
			j, at = rest, rest.NotBefore
		}
		if rest.First() {
			passable = false
			break
		}
	}
	if passable && q.hasNext() && (at > by || s.breaker.hasTried(j)) {
		return nil, 0
	}
	return j, at
}

// Next returns when Step has something to do again, as far as time goes.
func (s *Schedule) Next(now bucket.Micros) bucket.Micros {
	if len(s.active) > 0 || s.turns.room.size > 0 && s.room() || s.lapses.goOn() {
		return now
	}
	next := s.timers.next()
	if s.held != 0 {
		next = min(next, s.held)
	}
	if s.spent != 0 {
		next = min(next, s.spent)
	}
	if s.turns.lines[askLine].queues > 0 && !s.full() && s.store.rounds == 0 {
		next = min(next, s.gate.opens)
	}
	if s.turns.lines[prepareLine].queues > 0 && s.staged < s.width(now) {
		next = min(next, s.inviteAt())
	}
	return next
}

// Asking reports whether a round of asks is under way.
func (s *Schedule) Asking() bool { return s.store.rounds > 0 }

// Queues yields the queues of all keys that have jobs, or of which something must be remembered. If the caller
// releases the lock between two of them, a queue that came or went meanwhile may be yielded or not.
func (s *Schedule) Queues() iter.Seq[*KeyQueue] { return maps.Values(s.byKey) }

// Find returns the queue of a key, nil if there is none.
func (s *Schedule) Find(key string) *KeyQueue { return s.byKey[key] }

// Has reports whether a queue is still its key's; one that came to its end is not.
func (s *Schedule) Has(q *KeyQueue) bool { return s.byKey[q.Key] == q }

// Stop lets nothing new start, and returns the unused slots.
func (s *Schedule) Stop() []bucket.Use {
	s.drain = true
	var fx Effects
	for _, q := range s.byKey {
		if first := firstGranted(q); first != nil {
			s.giveBack(q, first, &fx)
		}
	}
	return fx.Unused
}

// OpenPartition lets the jobs of a partition be called.
func (s *Schedule) OpenPartition(p *Partition) {
	p.Open = true
	for _, q := range s.byKey {
		if q.Partition == p {
			s.Touch(q)
		}
	}
}

// Unfinished returns how many jobs have not ended.
func (s *Schedule) Unfinished() int { return s.unfinished }

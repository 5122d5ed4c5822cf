package schedule

import (
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
	"weir/dispatcher/schedule/limits"
	"weir/dispatcher/schedule/turns"
)

// Pace holds the times and bounds of a schedule.
type Pace struct {
	PrepareLead  time.Duration // how long before its slot a job is made ready
	ReserveAhead time.Duration // how long before its time a slot is asked for
	GrantTTL     time.Duration // how long after its time a slot may still be used
	Clock        StoreClock    // the clock by which the store counts
	Replica      string        // names this process among those that use the store; "" if no other does
	Common       bool          // other replicas may call the api, and share its holds (finding.go)

	MaxStaged int // most jobs that are ready at the same time, over all keys
	MaxCalls  int // most calls that run at the same time, over all keys
}

// sharesStore reports whether other processes, or other apis of the account, use the store, too.
func (p *Pace) sharesStore(r *bucket.Rules) bool { return p.Replica != "" || r.In != nil }

// Schedule decides which call may start when. It is a plain value: it gets the time as now, and returns what must be
// done as Effects. Its owner locks it. Each of its parts holds the state of one subject (doc.go).
type Schedule struct {
	policy *Policy // the policy that makes jobs ready
	drain  bool    // nothing new may start
	barred bool    // this process may not call now

	agenda                           // which queue is looked at, and when
	looks    looks                   // which jobs are looked at for an earlier answer
	turns    *turns.Turns[*KeyQueue] // which queue is next at shared limits and room
	gate     gate                    // when the store may be asked again for shared limits
	Shared   limits.Shared           // the state of the limits that keys share
	grants   *limits.Grants          // the granted calls that Shared counts
	store    storeLink               // the way to the store of slots
	Findings Findings                // what replicas tell each other of the api
	Pipe     Pipeline                // the jobs on their way through a call
	Holds    Holds                   // holds, pauses, breaker and slow starts
	suspects suspects                // jobs that may have killed their owners
	packs    packs                   // the jobs that wait to go in one call
	causes   causes                  // what queues have waited for

	census    census // numbers of jobs and queues
	Forfeited int64  // slots that were given back
}

// New returns a schedule without jobs. tatOf returns the theoretical arrival time that the store has for a key, by the
// store's clock, 0 if it has none.
func New(policy *Policy, p Pace, tatOf func(key string) bucket.Micros) *Schedule {
	s := &Schedule{
		policy: policy, agenda: agenda{byKey: map[string]*KeyQueue{}}, store: storeLink{clock: p.Clock, tatOf: tatOf},
		Pipe: Pipeline{pace: p, callTime: time.Second, exit: newExit()}, causes: firstCauses(),
	}
	s.Findings = Findings{holds: &s.Holds, agenda: &s.agenda, on: p.Common}
	s.Holds = newHolds(policy, &s.agenda, &s.Findings)
	s.grants = limits.NewGrants(s.Pipe.pace.sharesStore(&s.policy.Rules))
	s.Shared = limits.NewShared(&policy.Rules, policy.Price, policy.Settles, s.grants)
	s.gate.replica = limits.NewReplica(&policy.Rules, limits.Replica{})
	s.turns = turns.New[*KeyQueue](policy.Rules.Weights, &s.Pipe.onWay)
	return s
}

// Effects are what the dispatcher must do after a step.
type Effects struct {
	Load    []*Job      // load their messages, store their intents, then call Loaded
	Look    []*Job      // look up an answer, then call Looked, Await, AwaitTurn or Forgo, or Unstage if they end
	Start   []*Job      // call now
	Expire  []*Job      // their deadline has passed
	Cancel  []*Job      // an operator cancelled them
	Recall  []*Job      // an operator cancelled them while they were polled
	Resumed []*KeyQueue // their hold is over; nil stands for the api
	Shared  bool        // the first nil in Resumed stands for a hold that the replicas share
	Stale   []*Job      // withdrawn: they rest, and are made ready again later
	Claim   int64       // the turn of the breaker: claim its probe, then call Claim; 0: no claim is needed
	Unclaim bool        // the claim was not used and has ended: give it back
	Unused  []bucket.Use
	Asks    []bucket.Ask
	asked   [][]*Job // the jobs for which each ask asks
}

// Queue returns the key's queue, and creates it if it is missing.
func (s *Schedule) Queue(key string, p *Partition) *KeyQueue {
	q := s.byKey[key]
	if q == nil {
		q = &KeyQueue{Key: key, Partition: p, entry: entry{place: notTimed}, Limits: s.policy.LimitsOf(key), keyPace: keyPace{TAT: s.store.ourTAT(key)}}
		q.cold = q.TAT != 0 // the TAT may be from the ledger of a former process, whose slots the store does not know
		_, q.brake.paused = s.Holds.paused.keys[key]
		s.turns.Join(q, bucket.Normal, s.policy.Rules.Tenant(key))
		s.byKey[key] = q
		s.agenda.add(q)
	}
	return q
}

// Push adds a normal job that may be called at once. If the key has jobs that may not be called yet, the caller must
// use PushEarly instead.
func (s *Schedule) Push(key string, seq uint64, p *Partition) *KeyQueue {
	return s.push(key, seq, p, bucket.Normal, 0)
}

// PushEarly adds a job of a priority that must not be called before notBefore, which is 0 if it may be called at once.
// came is when the job came.
func (s *Schedule) PushEarly(key string, seq uint64, p *Partition, of bucket.Priority, came, notBefore bucket.Micros) *KeyQueue {
	if notBefore <= came {
		s.release(s.Queue(key, p), came, seq-1) // these jobs were due when this one came
		return s.push(key, seq, p, of, 0)
	}
	if end := p.deadlines[seq]; end != 0 && end < notBefore {
		notBefore = end // the intake accepts no such job; it ends when its deadline passes
	}
	return s.push(key, seq, p, of, notBefore)
}

// push adds a job of a priority. due is the time before which it must not be called, 0 if it may be called at once.
func (s *Schedule) push(key string, seq uint64, p *Partition, of bucket.Priority, due bucket.Micros) *KeyQueue {
	p.newest = max(p.newest, seq)
	q := s.Queue(key, p)
	q.waits.Mix(of, s.policy.Rules.Weights)
	if !q.seats.IsJoined(of) {
		s.turns.Join(q, of, s.policy.Rules.Tenant(q.Key))
	}
	s.census.came(q)
	if due == 0 {
		s.turns.Comes(of, 1)
		q.waits.Add(of, seq)
	} else {
		s.census.early++
		q.waits.Of(of).AddEarly(backlog.Appointment{At: due, Seq: seq})
	}
	s.census.keep(q, q.Empty() && s.byKey[q.Key] == q)
	s.Touch(q)
	return q
}

// release lets the queue's early jobs be called that are due at now. Their places are behind the sequence after.
func (s *Schedule) release(q *KeyQueue, now bucket.Micros, after uint64) {
	for _, p := range q.waits.Priorities() {
		if n := q.waits.Release(p, now, after); n > 0 {
			s.census.early -= n
			s.turns.Comes(p, n)
		}
	}
}

// Allow sets whether calls may start. If they may not, granted slots are given back when they are due, no job is made
// ready, and no slot is asked for.
func (s *Schedule) Allow(may bool) {
	if s.barred == !may {
		return
	}
	s.barred = !may
	s.agenda.touchAll()
}

// Step does all that can be done at now.
func (s *Schedule) Step(now bucket.Micros) Effects {
	do := step{Schedule: s, now: now}
	do.run()
	return do.fx
}

// Next returns the next time at which Step will have something to do, unless something else happens first.
func (s *Schedule) Next(now bucket.Micros) bucket.Micros {
	if len(s.agenda.active) > 0 || len(s.Pipe.polling.cancelled) > 0 || s.turns.RoomWaiting() > 0 && s.Pipe.hasRoom(&s.Holds.breaker) ||
		s.agenda.canLapse() || s.looks.canGoOn(&s.Pipe) {
		return now
	}
	next := min(s.agenda.timers.next(), s.Holds.next(), s.Findings.claimEnds())
	if s.turns.Asking() > 0 && !s.Pipe.isFull() && !s.store.isAsked() {
		next = min(next, s.gate.opens)
	}
	if v := s.At(now); s.turns.Preparing() > 0 && (s.Pipe.staged < v.width() || s.turns.IsFirstOnWay()) {
		next = min(next, v.inviteAt())
	}
	return next
}

// Stop makes the schedule start nothing new. It returns the granted slots, which will not be used.
func (s *Schedule) Stop() []bucket.Use {
	s.drain = true
	back := step{Schedule: s}
	for _, q := range s.agenda.all {
		if first := firstGranted(q); first != nil {
			back.giveBack(q, first)
		}
	}
	return back.fx.Unused
}

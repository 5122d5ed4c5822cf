package schedule

import (
	"math"
	"strings"
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

	Queues   Queues                  // the queues of all keys: which is looked at, and when
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
		policy: policy, Queues: Queues{byKey: map[string]*KeyQueue{}}, store: storeLink{clock: p.Clock, tatOf: tatOf},
		Pipe: Pipeline{pace: p, callTime: time.Second, exit: newExit()}, causes: firstCauses(),
	}
	s.Findings = Findings{holds: &s.Holds, queues: &s.Queues, on: p.Common}
	s.Holds = newHolds(policy, &s.Queues, &s.Findings)
	s.grants = limits.NewGrants(s.Pipe.pace.sharesStore(&s.policy.Rules))
	s.Shared = limits.NewShared(&policy.Rules, policy.Price, policy.Settles, s.grants)
	s.gate.replica = limits.NewReplica(&policy.Rules, limits.Replica{})
	s.turns = turns.New[*KeyQueue](policy.Rules.Weights, &s.Pipe.onWay)
	return s
}

// Effects are what the dispatcher must do after a step.
type Effects struct {
	Load    []*Job      // load their messages, store their intents, then call Loaded
	Look    []*Job      // look up an answer, then call Looked or Forgo, or Unstage if they end
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
	q := s.Queues.byKey[key]
	if q == nil {
		key = strings.Clone(key) // it may be a part of its message's subject, which would stay in memory
		q = &KeyQueue{Key: key, Partition: p, entry: entry{place: notTimed}, Limits: s.policy.LimitsOf(key), keyPace: keyPace{TAT: s.store.ourTAT(key)}}
		q.cold = q.TAT != 0 // the TAT may be from the ledger of a former process, whose slots the store does not know
		_, q.brake.paused = s.Holds.paused.keys[key]
		s.turns.Join(q, bucket.Normal, s.policy.Rules.Tenant(key))
		s.Queues.byKey[key] = q
		s.Queues.add(q)
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
	s.census.keep(q, q.Empty() && s.Queues.byKey[q.Key] == q)
	s.Queues.Touch(q)
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
	s.Queues.touchAll()
}

// Step does all that can be done at now.
func (s *Schedule) Step(now bucket.Micros) Effects {
	do := step{Schedule: s, now: now}
	do.run()
	return do.fx
}

// Next returns the next time at which Step will have something to do, unless something else happens first.
func (s *Schedule) Next(now bucket.Micros) bucket.Micros {
	if len(s.Queues.active) > 0 || len(s.Pipe.polling.cancelled) > 0 || s.turns.RoomWaiting() > 0 && s.Pipe.hasRoom(&s.Holds.breaker) ||
		s.Queues.canLapse() || s.looks.canGoOn(&s.Pipe) {
		return now
	}
	next := min(s.Queues.timers.next(), s.Holds.next(), s.Findings.claimEnds())
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
	for _, q := range s.Queues.all {
		if first := firstGranted(q); first != nil {
			back.giveBack(q, first)
		}
	}
	return back.fx.Unused
}

// Policy is the configuration that the schedule follows for one api. It is immutable: another configuration is another
// Policy. The same policy makes a job ready and judges its call. If a new policy comes while a job is ready and has no
// slot, the job is made ready again by the new one.
type Policy struct {
	Rules   bucket.Rules
	Price   int64 // of a usual call, in millionths
	Settles bool  // answers say what their calls cost
	Retry   Retry
	Breaker BreakerPolicy
	Reuse   bool     // jobs may end with the answer of an equal job (stage.go)
	Packs   *Packing // nil: each call has one job
}

// LimitsOf returns a key's limits. All keys without an override share one value.
func (p *Policy) LimitsOf(key string) *bucket.KeyLimits {
	if len(p.Rules.Overrides) == 0 {
		return &p.Rules.Key
	}
	limits := p.Rules.For(key)
	return &limits
}

// DrainTime returns how long a full bucket takes to drain.
func (p *Policy) DrainTime(limits *bucket.KeyLimits) time.Duration {
	return p.interval(limits) * time.Duration(limits.Rate.Burst)
}

// interval returns the time between two calls of a key.
func (p *Policy) interval(limits *bucket.KeyLimits) time.Duration {
	return p.Rules.Interval(limits.Rate).Duration()
}

// slot returns the slot that the key's own rate gives its n-th call after the time from, counted from 1.
func (p *Policy) slot(limits *bucket.KeyLimits, tat, from bucket.Micros, n int) bucket.Micros {
	return bucket.Forecast(*limits, p.Rules.Interval(limits.Rate), tat, from, n)
}

// NextSlot returns the earliest slot that a key's own rate allows, as far as this process knows.
func (p *Policy) NextSlot(q *KeyQueue, now bucket.Micros) bucket.Micros {
	return p.slot(q.Limits, q.TAT, now, 1)
}

// Retry holds the rules that decide when the next call may start after a failed one.
type Retry struct {
	Attempts int           // calls that may count as attempts, including the first
	Min, Max time.Duration // bounds of the backoff
	HoldAPI  bool          // pushback holds the api, not only the key
	// HoldAccount says that pushback holds all apis of the account.
	HoldAccount bool
	Adaptive    *Adaptive // nil: pushback does not lower the rate
}

// Backoff returns the delay after the n-th failure in a row, counted from 1. It grows exponentially from least to most.
// jitter, from 0 to 1, spreads it over its upper half, so that jobs that failed together do not come back together.
func Backoff(least, most time.Duration, n int, jitter float64) time.Duration {
	d := float64(least) * math.Pow(2, float64(min(n, 40)-1))
	d = math.Min(d, float64(most))
	return time.Duration(d/2 + jitter*d/2)
}

// Lateness returns how long after its slot a call may still leave: four fifths of the jitter. The last fifth is left to
// the network.
func Lateness(r *bucket.Rules) time.Duration { return max(r.Jitter*4/5, time.Millisecond) }

// Policy returns the policy in force.
func (s *Schedule) Policy() *Policy { return s.policy }

// Adopt puts a new policy in force. It also ends any wait before the store may be asked again for slots under shared
// limits. The caller must then call Rebind for every queue.
func (s *Schedule) Adopt(next *Policy) {
	s.policy = next
	s.Pipe.pace.GrantTTL = Lateness(&next.Rules)
	s.gate.open()
	s.Holds.adopt(next)
	s.grants = s.grants.Under(s.Pipe.pace.sharesStore(&s.policy.Rules))
	s.Shared = limits.NewShared(&next.Rules, next.Price, next.Settles, s.grants)
	s.gate.replica = limits.NewReplica(&next.Rules, s.gate.replica)
	s.turns.Reset(next.Rules.Weights)
}

// Rebind gives a queue the present rules. The queue's TAT was computed with the former rate. Rebind bounds it by the
// TAT of a full bucket of the present rate. Only the store knows the exact TAT.
func (s *Schedule) Rebind(q *KeyQueue, now bucket.Micros) {
	if s.Queues.byKey[q.Key] != q {
		return // the queue has been dropped meanwhile
	}
	q.Limits = s.policy.LimitsOf(q.Key)
	s.turns.Rejoin(q, s.policy.Rules.Tenant(q.Key))
	q.waits.Weigh(s.policy.Rules.Weights)
	full := now.Add(s.policy.DrainTime(q.Limits))
	q.lower(full, s.store.offset.theirs(full))
	q.Jobs.rouse(now)
	s.Queues.Touch(q)
}

// Bounds of one api's dispatch.
const (
	MaxCalls  = 4096          // that run at the same time, over all keys
	MaxStaged = limits.Plenty // jobs with their message in memory, near their call
)

// How far ahead of its slot a job is made ready, and how far ahead the slot is asked for. To make a job ready, the
// dispatcher loads its message, connects, and stores its intent. It begins ahead of the slot by the lead: one and a
// half times as long as this took lately. The lead is not longer, because after a crash that the flight recorder
// does not outlive, the outcome of every job with an intent is unknown, even if the job was not called. Without an
// idempotency key such a job becomes a letter. The slot itself is asked for only shortly before it, because a
// missed slot is lost for every key.
const (
	LeastLead  = 6 * time.Millisecond
	mostLead   = 60 * time.Millisecond
	LeastAhead = 4 * time.Millisecond

	// MostAhead bounds how far ahead slots are asked for. It takes effect if round trips to the store are slow.
	MostAhead = 100 * time.Millisecond
)

// Partition is what the schedule knows of one tenure of a partition. A partition that is taken over again is
// another Partition.
type Partition struct {
	Of       any           // the dispatcher's data; the schedule does not look at it
	Open     bool          // calls of queues that have been read far enough may start
	Stalled  bool          // too many finished jobs are not deleted yet
	Reading  bool          // jobs that were in the stream at the takeover are still to be read
	Leftover bucket.Micros // until when calls of an owner that did not release it may still run; 0: none may

	newest uint64 // sequence of the newest job that was pushed

	// members counts, for each queue, the jobs that are members of packs.
	members map[*KeyQueue]int

	// deadlines holds the deadlines of the waiting jobs that have one, by sequence. Each takes some 40 bytes.
	deadlines map[uint64]bucket.Micros
}

// Has reports whether the schedule has received the partition's jobs up to a sequence.
func (p *Partition) Has(seq uint64) bool { return seq <= p.newest }

// Expect notes the deadline of a waiting job. The job's message has it too, but is loaded only when the job can be
// called, and the deadline may pass before that.
func (p *Partition) Expect(seq uint64, at bucket.Micros) {
	if p.deadlines == nil {
		p.deadlines = map[uint64]bucket.Micros{}
	}
	p.deadlines[seq] = at
}

// takeDeadline removes and returns the deadline of a job that leaves the backlog, 0 for none.
func (p *Partition) takeDeadline(seq uint64) bucket.Micros {
	at := p.deadlines[seq]
	delete(p.deadlines, seq)
	return at
}

// census counts the jobs and the queues of a schedule.
type census struct {
	unfinished int    // jobs that have not ended
	early      int    // of the unfinished, jobs whose due times have not come
	kept       int    // queues without jobs, kept because they remember their key's state
	arrived    uint64 // jobs that came since the schedule began, except those found by a takeover
}

// came counts a job that came to a queue. A job found while its partition is read does not count as arrived.
func (c *census) came(q *KeyQueue) {
	c.unfinished++
	if !q.Partition.Reading {
		q.arrived++
		c.arrived++
	}
}

// keep counts a queue as kept without jobs if kept is true. Otherwise it stops counting the queue.
func (c *census) keep(q *KeyQueue, kept bool) {
	switch {
	case kept && !q.kept:
		c.kept++
	case !kept && q.kept:
		c.kept--
	}
	q.kept = kept
}

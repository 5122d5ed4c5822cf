package schedule

import (
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
	"weir/dispatcher/schedule/limits"
)

// View reports the state of a schedule at one moment. It decides nothing and changes nothing that a decision depends
// on. It is valid only while the caller holds the schedule's lock.
type View struct {
	s   *Schedule
	now bucket.Micros
}

// At returns a View of the schedule at now.
func (s *Schedule) At(now bucket.Micros) View { return View{s, now} }

// RateState is a key's rate, and what remains of it after jitter and headroom.
type RateState struct {
	Count      int64           `json:"count"`
	PerUS      int64           `json:"per_us"`
	Burst      int64           `json:"burst"`
	Counts     bucket.Counting `json:"counts"`
	IntervalUS int64           `json:"interval_us"` // between two calls in the long run
}

// KeyState is one key's bucket.
type KeyState struct {
	Key         string    `json:"key"`
	Depth       int       `json:"depth"` // unfinished jobs, including the ones being called
	Capacity    int64     `json:"capacity"`
	InFlight    int       `json:"in_flight"`        // calls that run, and operations that hold their slots
	Polled      int       `json:"polled,omitempty"` // operations that go on at the api
	MaxInFlight int64     `json:"max_in_flight"`
	Rate        RateState `json:"rate"`
	WaitMS      int64     `json:"wait_ms"` // until a job that came now would be called; -1 if unknown
	Waits       Waiting   `json:"waits"`
	// Arrived counts the jobs that came since the bucket was last created: when it had been empty, or when its
	// partition was read.
	Arrived uint64 `json:"arrived"`
	// Jobs counts the unfinished jobs of each priority. It is empty if all are normal.
	Jobs map[string]int `json:"jobs,omitempty"`
}

// byPriority returns the number of the queue's unfinished jobs of each priority that has any, nil if all are normal.
func (q *KeyQueue) byPriority() map[string]int {
	var depths [len(bucket.Priorities)]int
	for _, p := range q.waits.Priorities() {
		depths[p-bucket.High] = q.waits.Of(p).Size()
	}
	for _, j := range q.Jobs {
		depths[j.Priority-bucket.High] += 1 + len(j.members)
	}
	for _, j := range q.polled {
		depths[j.Priority-bucket.High]++
	}
	if depths[bucket.Normal-bucket.High] == q.Depth() {
		return nil
	}
	jobs := map[string]int{}
	for i, p := range bucket.Priorities {
		if depths[i] > 0 {
			jobs[p.String()] = depths[i]
		}
	}
	return jobs
}

// JobState is one unfinished job of a key.
type JobState struct {
	Position int        `json:"position"`
	Job      string     `json:"job,omitempty"` // empty when it could not be loaded
	Seq      uint64     `json:"seq"`
	Phase    JobPhase   `json:"phase"`
	Calls    int        `json:"calls"` // made so far
	ETA      *time.Time `json:"eta,omitempty"`
	Priority string     `json:"priority,omitempty"` // "" for normal
	// Awaits names the equal job for whose answer the job waits; absent if it waits for none.
	Awaits string `json:"awaits,omitempty"`
}

// PriorityName returns the name of a priority in reports: "" for Normal.
func PriorityName(p bucket.Priority) string {
	if p == bucket.Normal {
		return ""
	}
	return p.String()
}

// JobPhase is how far a job has come: a closed set.
type JobPhase string

// The phases.
const (
	JobWaits     JobPhase = "waiting"
	JobRetries   JobPhase = "retry"      // waits for its retry
	JobNotBefore JobPhase = "not_before" // must not be called yet, as its producer asked
	JobNext      JobPhase = "next"       // is made ready, or has its slot
	JobCalling   JobPhase = "calling"
	JobEnding    JobPhase = "ending"  // its call has ended; its outcome is being stored
	JobPolling   JobPhase = "polling" // the api has accepted it, and weir polls its operation
)

// Depth returns the number of the queue's unfinished jobs.
func (q *KeyQueue) Depth() int { return q.uncalled() + len(q.polled) }

// uncalled returns the number of the queue's unfinished jobs that are not polled.
func (q *KeyQueue) uncalled() int { return q.waits.Size() + len(q.Jobs) + q.Partition.packed(q) }

// Inspect returns a queue's state.
func (v View) Inspect(q *KeyQueue) KeyState {
	return KeyState{
		Key: q.Key, Depth: q.Depth(), Capacity: q.Limits.Capacity, Arrived: q.arrived,
		InFlight: q.Jobs.count(calling) + int(q.held), Polled: len(q.polled), MaxInFlight: q.Limits.InFlight,
		Rate:   v.rateState(q.Limits.Rate),
		WaitMS: waitMS(v.now, max(q.lentUntil(v.now), v.ofQueue(q, bucket.Normal, q.uncalled()+1-v.Behind(q.Key, 0, bucket.Normal)-q.Jobs.under(granted, calling, settling), backlog.Appointment{}))),
		Waits:  v.waits(q),
		Jobs:   q.byPriority(),
	}
}

// InspectPaused returns the state of a key without jobs if the key or its api is paused. Otherwise ok is false.
func (v View) InspectPaused(key string) (state KeyState, ok bool) {
	pause := v.s.Holds.paused.of(key)
	if pause == nil {
		return KeyState{}, false
	}
	own := v.s.policy.LimitsOf(key)
	return KeyState{
		Key: key, Capacity: own.Capacity, MaxInFlight: own.InFlight, Rate: v.rateState(own.Rate),
		WaitMS: waitMS(v.now, forecast{v, limits.Likely}.at(nil, Place{Key: key, Position: 1}, v.KnownTAT(key), backlog.Appointment{})), Waits: pause.waiting(),
	}, true
}

func (v View) rateState(r bucket.Rate) RateState {
	return RateState{
		Count: r.Count, PerUS: r.Per.Microseconds(), Burst: r.Burst, Counts: r.Counted(), IntervalUS: v.s.policy.Rules.Interval(r).Duration().Microseconds(),
	}
}

// waitMS returns the wait from now until at, in milliseconds; -1 if at is Never.
func waitMS(now, at bucket.Micros) int64 {
	if at == Never {
		return -1
	}
	return now.Until(at).Milliseconds()
}

// FirstJobs lists at most limit of a queue's jobs, in order. Early jobs come last, ordered by due time. A job without a
// slot has no ETA while operations hold all slots of the queue, unless it must not be called yet.
func (v View) FirstJobs(q *KeyQueue, limit int) []JobState {
	jobs := make([]JobState, 0, min(limit, q.Depth()))
	without := 0 // jobs listed so far that have no slot
	list := func(state JobState, eta bucket.Micros) (more bool) {
		state.Position = len(jobs) + 1
		if eta < Never-1 {
			at := eta.Time()
			state.ETA = &at
		}
		jobs = append(jobs, state)
		return len(jobs) < limit
	}
	for _, j := range q.polled.first(limit) {
		if !list(JobState{Seq: j.Seq, Calls: j.Calls, Phase: JobPolling, Priority: PriorityName(j.Priority)}, Never) {
			return jobs
		}
	}
	for p, j := range q.inOrder {
		if j == nil {
			without++
			if !list(JobState{Seq: p.Seq, Phase: JobWaits, Priority: PriorityName(p.Of)}, v.called(q, p.Of, without)) {
				return jobs
			}
			continue
		}
		eta := Never
		switch j.Phase {
		case calling, settling:
		case granted:
			eta = j.At
		default:
			if without++; j.awaits == "" {
				eta = max(j.NotBefore, v.called(q, j.Priority, without))
			}
		}
		if !list(JobState{Seq: j.Seq, Calls: j.Calls, Phase: j.inspect(), Priority: PriorityName(j.Priority), Awaits: j.awaits}, eta) {
			return jobs
		}
		for _, m := range j.members {
			if j.Phase != granted && j.Phase != calling {
				without++
			}
			if !list(JobState{Seq: m.Seq, Calls: m.Calls, Phase: j.inspect(), Priority: PriorityName(m.Priority)}, eta) {
				return jobs
			}
		}
	}
	for l, of := range q.waits.AllEarly {
		without++
		if !list(JobState{Seq: l.Seq, Phase: JobNotBefore, Priority: PriorityName(of)}, v.ofQueue(q, of, without, l)) {
			return jobs
		}
	}
	return jobs
}

// PhaseOf returns how far a job has come, and how many calls of it were made. The phase is "" if the queue does not
// have the job, or if the job must not be called yet.
func (q *KeyQueue) PhaseOf(seq uint64) (phase JobPhase, calls int) {
	if j := q.Job(seq); j != nil {
		if leader, _ := q.Jobs.leaderOf(seq); leader != nil {
			return leader.inspect(), j.Calls
		}
		return j.inspect(), j.Calls
	}
	if q.waits.IsDue(seq) {
		return JobWaits, 0
	}
	return "", 0
}

// called is ofQueue for a list of jobs: it also counts the wait for more jobs of a pack, and the wait for a slot. It
// returns Never while operations hold all slots of the queue.
func (v View) called(q *KeyQueue, of bucket.Priority, n int) bucket.Micros {
	return max(q.lentUntil(v.now), v.ofQueue(q, of, n, backlog.Appointment{}), v.gathersUntil(q, nil, of))
}

// inOrder yields the queue's jobs that are being called or may be called, in order. The Job is nil if the job is still
// in the backlog.
func (q *KeyQueue) inOrder(yield func(backlog.Spot, *Job) bool) {
	waiting, jobs := q.waits.Callable(), q.near()
	for {
		p, waits := waiting.Next()
		var j *Job
		switch {
		case len(jobs) > 0 && (!waits || q.precedes(jobs[0]) || jobs[0].spot().Compare(p) < 0):
			p, j, jobs = jobs[0].spot(), jobs[0], jobs[1:]
		case waits:
			waiting.Pass(p)
		default:
			return
		}
		if !yield(p, j) {
			return
		}
	}
}

func (state *Job) inspect() JobPhase {
	switch state.Phase {
	case looking:
		return JobWaits
	case resting:
		if state.Calls > 0 {
			return JobRetries
		}
		return JobWaits
	case calling:
		return JobCalling
	case settling:
		return JobEnding
	case polled:
		return JobPolling
	}
	return JobNext
}

// Counts is how much work a schedule has.
type Counts struct {
	Queued          int // due jobs that wait for their call, or for their retry
	Early           int // jobs whose due times have not come
	Keys, Calling   int
	Held, Paused    int    // keys, and the api as one more
	Polled          int    // operations that go on at the api
	Arrived, Called uint64 // jobs that came, and calls that ended, since the schedule began
}

// Unfinished returns how many jobs have not ended.
func (c Counts) Unfinished() int { return c.Queued + c.Early + c.Calling + c.Polled }

// Count counts a schedule's work. ours reports whether this process owns a key's partition.
func (v View) Count(ours func(key string) bool) Counts {
	n, pipe := v.s.census, &v.s.Pipe
	return Counts{
		Queued: n.unfinished - n.early - pipe.calls - pipe.polling.jobs, Early: n.early, Polled: pipe.polling.jobs,
		Keys: len(v.s.Queues.byKey) - n.kept, Calling: pipe.calls, Held: v.s.Holds.count(v.now),
		Paused:  v.s.Holds.paused.count(ours),
		Arrived: n.arrived, Called: pipe.ended,
	}
}

// Uses returns how much this process uses of rates and of limits of calls in flight: the shared limits come first, then
// those of this replica alone.
func (v View) Uses() (uses []limits.Use) {
	for i := range v.s.Shared {
		if u, counted := v.s.Shared[i].Use(&v.s.policy.Rules, v.now, v.running()); counted {
			uses = append(uses, u)
		}
	}
	return append(uses, v.s.gate.replica.Uses(&v.s.policy.Rules, v.now, v.running())...)
}

// ClosedUntil returns the time before which no request about a key, neither a call nor an inquiry, may be sent to the
// api. It returns Never while the key or the api is paused, and 0 if requests may be sent now.
func (v View) ClosedUntil(key string) bucket.Micros {
	return v.s.Holds.closedUntil(key, v.s.Queues.byKey[key], v.now)
}

// IsPaused reports whether an operator has paused a key, or the api.
func (v View) IsPaused(key string) bool { return v.s.Holds.paused.of(key) != nil }

// Holds lists the holds in force now: first the api's hold, then at most limit of the keys' holds, ordered by when they
// end. keys is the number of all held keys.
func (v View) Holds(limit int) (holds []HoldState, keys int) { return v.s.Holds.list(limit, v.now) }

// LimiterDown reports whether the store of the limits refused the last round of asks, or did not answer it. Calls then
// wait.
func (v View) LimiterDown() bool { return v.s.store.isDown() }

// near returns how many calls the shared limits let start within LongWait, less one. It also returns whether that
// number is known, and the limit that lets the fewest start.
func (v View) near() (n float64, known bool, by string) {
	return v.s.Shared.Near(v.now, v.s.Pipe.calls, v.s.Pipe.polling.held, v.s.Pipe.callTime)
}

// running returns how many calls of this process count against limits of calls in flight. These are the running calls,
// and the operations that hold their slots.
func (v View) running() int { return v.s.Pipe.calls + v.s.Pipe.polling.held }

// width returns how many jobs may be staging, ready or granted: as many as every shared limit lets start within
// LongWait, and at least one. A crash makes each of them unknown. If that number is not known, or other processes or
// apis use the limits too, width goes by the grants of this process. It then begins with one job, and allows more with
// every grant.
func (v View) width() int {
	n, known, _ := v.near()
	if len(v.s.Shared) > 0 && (!known || v.s.store.clock == OtherClock || v.s.Pipe.pace.sharesStore(&v.s.policy.Rules)) {
		n = min(n, v.s.Pipe.grantedLately(v.now))
	}
	if v.s.gate.replica.Any() {
		n = min(n, v.s.gate.replica.Near(v.now, v.s.Pipe.underWay()))
	}
	return min(v.s.Pipe.pace.MaxStaged, 1+int(n))
}

// inviteAt returns when the queues in line must make jobs ready: earlier than the shared limits may be asked again by
// the time that making a job ready takes. While the store does not answer, one queue at a time makes one job ready,
// when the store may be asked again.
func (v View) inviteAt() bucket.Micros {
	switch {
	case !v.s.store.isDown():
		return v.s.gate.opens - bucket.Micros(v.s.Pipe.pace.PrepareLead.Microseconds())
	case v.s.Pipe.staged == 0:
		return v.s.gate.opens
	}
	return Never
}

// Asking reports whether a round of asks is under way.
func (v View) Asking() bool { return v.s.store.isAsked() }

// Unfinished returns how many jobs have not ended.
func (v View) Unfinished() int { return v.s.census.unfinished }

// Denied reports whether no calls are made because the api denies weir.
func (v View) Denied() bool { return v.s.Holds.breaker.denied }

// Callable returns the time before which no call of a queue starts because of the queue's own holds, rate and calls in
// flight. It returns Never if operations hold all slots of the queue. It ignores pauses, and holds of the whole api.
func (v View) Callable(q *KeyQueue) bucket.Micros {
	return max(q.lentUntil(v.now), q.brake.held, q.brake.earliest(), v.s.policy.NextSlot(q, v.now))
}

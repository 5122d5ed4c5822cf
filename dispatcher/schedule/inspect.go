package schedule

import (
	"time"

	"weir/bucket"
)

// View tells of a schedule as it stands at a moment. It decides nothing and changes nothing that anything goes by, and holds no longer than
// its owner's lock.
type View struct {
	s   *Schedule
	now bucket.Micros
}

// At is the schedule at a moment.
func (s *Schedule) At(now bucket.Micros) View { return View{s, now} }

// RateState is a key's rate, and what remains of it once jitter and headroom are taken off.
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
	Depth       int       `json:"depth"` // unfinished jobs, the ones being called too
	Capacity    int64     `json:"capacity"`
	InFlight    int       `json:"in_flight"`
	MaxInFlight int64     `json:"max_in_flight"`
	Rate        RateState `json:"rate"`
	WaitMS      int64     `json:"wait_ms"` // until the call of a job that came now; -1 where nobody can say, as of a pause without an end
	Waits       Waiting   `json:"waits"`
	// Arrived counts the jobs that came since the bucket was last made, which is when it has been empty or its partition has been read.
	Arrived uint64 `json:"arrived"`
}

// JobState is one unfinished job of a key.
type JobState struct {
	Position int        `json:"position"`
	Job      string     `json:"job,omitempty"` // empty when it could not be loaded
	Seq      uint64     `json:"seq"`
	Phase    JobPhase   `json:"phase"`
	Calls    int        `json:"calls"` // made so far
	ETA      *time.Time `json:"eta,omitempty"`
}

// JobPhase is how far a job has come: a closed set.
type JobPhase string

// The phases.
const (
	JobWaits     JobPhase = "waiting"
	JobRetries   JobPhase = "retry"      // waits for its retry
	JobNotBefore JobPhase = "not_before" // is not to be called yet, as its producer asked
	JobNext      JobPhase = "next"       // is made ready, or has its slot
	JobCalling   JobPhase = "calling"
	JobEnding    JobPhase = "ending" // its call has ended; its outcome is being stored
)

// Depth is the number of the queue's unfinished jobs.
func (q *KeyQueue) Depth() int { return q.waiting() + len(q.Jobs) }

// Inspect tells a queue's state at now.
func (v View) Inspect(q *KeyQueue) KeyState {
	return KeyState{
		Key: q.Key, Depth: q.Depth(), Capacity: q.Limits.Capacity, Arrived: q.arrived,
		InFlight: q.count(calling), MaxInFlight: q.Limits.InFlight,
		Rate:   v.rateState(q.Limits.Rate),
		WaitMS: waitMS(v.now, v.forecast(q, q.Depth()+1-q.Early(v.now)-q.count(granted, calling, settling))),
		Waits:  v.waits(q),
	}
}

// InspectPaused tells the state of a key without jobs, as far as it, or its api, is paused; ok is false where neither is.
func (v View) InspectPaused(key string) (state KeyState, ok bool) {
	pause := v.s.paused.of(key)
	if pause == nil {
		return KeyState{}, false
	}
	limits := v.s.LimitsOf(key)
	return KeyState{
		Key: key, Capacity: limits.Capacity, MaxInFlight: limits.InFlight, Rate: v.rateState(limits.Rate),
		WaitMS: waitMS(v.now, v.prospect(nil, Place{Key: key, Position: 1}, v.s.KnownTAT(key))), Waits: pause.waiting(),
	}, true
}

func (v View) rateState(r bucket.Rate) RateState {
	return RateState{
		Count: r.Count, PerUS: r.Per.Microseconds(), Burst: r.Burst, Counts: r.Counted(), IntervalUS: v.s.rules.Interval(r).Duration().Microseconds(),
	}
}

// waitMS is -1 when nobody can say.
func waitMS(now, at bucket.Micros) int64 {
	if at == Never {
		return -1
	}
	return now.Until(at).Milliseconds()
}

// FirstJobs lists a queue's first jobs, in order; those that are not to be called yet come last, the first to be due first.
func (v View) FirstJobs(q *KeyQueue, limit int) []JobState {
	jobs := make([]JobState, 0, min(limit, q.Depth()))
	without := 0 // jobs so far that have no slot
	list := func(state JobState, eta bucket.Micros) (more bool) {
		state.Position = len(jobs) + 1
		if eta < Never-1 {
			at := eta.Time()
			state.ETA = &at
		}
		jobs = append(jobs, state)
		return len(jobs) < limit
	}
	for p, j := range q.inOrder {
		if j == nil {
			without++
			if !list(JobState{Seq: p.seq, Phase: JobWaits}, v.forecast(q, without)) {
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
			without++
			eta = max(j.NotBefore, v.forecast(q, without))
		}
		if !list(JobState{Seq: j.Seq, Calls: j.Calls, Phase: j.inspect()}, eta) {
			return jobs
		}
	}
	for l := range q.early.all {
		without++
		eta := v.appointed(q, l, Place{Key: q.Key, Position: without}, q.TAT)
		if !list(JobState{Seq: l.seq, Phase: JobNotBefore}, eta) {
			return jobs
		}
	}
	return jobs
}

// inOrder goes through those of a queue's jobs that may be called, or are; of one that waits there is no Job.
func (q *KeyQueue) inOrder(yield func(place, *Job) bool) {
	waiting, jobs := KeyQueue{first: q.first, more: q.more}, q.Jobs
	if q.early != nil {
		waiting.early = &early{due: q.early.due}
	}
	for {
		p, waits := waiting.next()
		var j *Job
		switch {
		case len(jobs) > 0 && (!waits || jobs[0].place.compare(p) < 0):
			p, j, jobs = jobs[0].place, jobs[0], jobs[1:]
		case waits:
			waiting.pass(p)
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
	case resting:
		if state.Calls > 0 {
			return JobRetries
		}
		return JobWaits
	case calling:
		return JobCalling
	case settling:
		return JobEnding
	}
	return JobNext
}

// Counts are what a schedule has to do. ours says whether a key's partition is worked here.
type Counts struct {
	Queued, Keys, Calling, Held int
	Arrived, Called             uint64 // jobs that came, and calls that have ended, since the schedule began
}

// Count counts.
func (v View) Count(ours func(key string) bool) Counts {
	return Counts{Queued: v.s.unfinished - v.s.calls, Keys: len(v.s.byKey) - v.s.kept, Calling: v.s.calls, Held: v.countHeld(ours), Arrived: v.s.arrived, Called: v.s.ended}
}

package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// What an inspection may be told instead of an answer.
var (
	ErrNoAPI    = errors.New("no such api is dispatched here")
	ErrNoKey    = errors.New("the key has no unfinished jobs")
	ErrNotOwner = errors.New("another replica owns the key")
)

// Bounds of one inspection.
const (
	MaxInspected = 1000 // keys, or jobs of a key
	lookAtOnce   = 1024 // lines looked at under one hold of the lock
)

// APIState is one api as this replica sees it.
type APIState struct {
	API        string `json:"api"`
	Instance   string `json:"instance"`
	Partitions int    `json:"partitions"` // of the queue
	Owned      int    `json:"owned"`      // of them, by this replica
	Keys       int    `json:"keys"`       // with unfinished jobs
	Jobs       int    `json:"jobs"`       // unfinished
	InFlight   int    `json:"in_flight"`  // calls running
	Paused     int    `json:"paused"`     // by an operator: keys, the api as a whole being one
}

// RateState is a key's rate, and what remains of it once jitter and headroom are taken off.
type RateState struct {
	Count      int64 `json:"count"`
	PerUS      int64 `json:"per_us"`
	Burst      int64 `json:"burst"`
	IntervalUS int64 `json:"interval_us"` // between two calls in the long run
}

// KeyState is one key's bucket.
type KeyState struct {
	Key         string    `json:"key"`
	Depth       int       `json:"depth"` // unfinished jobs, the ones being called too
	Capacity    int64     `json:"capacity"`
	InFlight    int       `json:"in_flight"`
	MaxInFlight int64     `json:"max_in_flight"`
	Rate        RateState `json:"rate"`
	WaitMS      int64     `json:"wait_ms"` // until the call of a job that came now; -1 when an operator has paused it
	Waits       Waiting   `json:"waits"`
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
	JobWaits   JobPhase = "waiting"
	JobRetries JobPhase = "retry" // waits for its retry
	JobNext    JobPhase = "next"  // is made ready, or has its slot
	JobCalling JobPhase = "calling"
	JobEnding  JobPhase = "ending" // its call has ended; its outcome is being stored
)

// KeyDetail is one key's bucket with its next jobs.
type KeyDetail struct {
	KeyState
	API      string     `json:"api"`
	Stream   string     `json:"stream"`
	Instance string     `json:"instance"`
	Next     []JobState `json:"next"`
}

// State tells how many partitions of an api this replica owns and what is in them.
func (d *Dispatcher) State(api string) (APIState, error) {
	l := d.lane(api)
	if l == nil {
		return APIState{}, ErrNoAPI
	}
	n := l.counts()
	return APIState{
		API: api, Instance: d.opts.Instance, Partitions: len(l.queue.Partitions()), Owned: n.owned,
		Keys: n.keys, Jobs: n.queued + n.calling, InFlight: n.calling, Paused: len(d.Pauses(api)),
	}, nil
}

// Keys returns the deepest buckets of an api, deepest first, at most limit of them and at most MaxInspected. It looks at
// every key that has jobs, but never holds calls up for more than lookAtOnce of them, so that what it tells is not of
// one instant.
func (d *Dispatcher) Keys(api string, limit int) ([]KeyState, error) {
	l := d.lane(api)
	if l == nil {
		return nil, ErrNoAPI
	}
	states := []KeyState{}
	for _, k := range l.deepest(min(max(limit, 1), MaxInspected)) {
		l.mu.Lock()
		if line := l.s.lines[k.key]; line != nil && !line.empty() {
			states = append(states, l.s.inspect(line, l.now()))
		}
		l.mu.Unlock()
	}
	slices.SortFunc(states, func(a, b KeyState) int { return byDepth(a.Depth, b.Depth, a.Key, b.Key) })
	return states, nil
}

// Show returns one key's bucket and its first jobs, at most limit of them and at most MaxInspected. It loads the
// messages of those whose ids are not in memory.
func (d *Dispatcher) Show(ctx context.Context, api, key string, limit int) (KeyDetail, error) {
	l := d.lane(api)
	if l == nil {
		return KeyDetail{}, ErrNoAPI
	}
	partition := l.queue.Partition(key)
	l.mu.Lock()
	if l.parts[partition.Number()] == nil {
		l.mu.Unlock()
		return KeyDetail{}, ErrNotOwner
	}
	line := l.s.lines[key]
	if line == nil || line.empty() {
		l.mu.Unlock()
		return KeyDetail{}, ErrNoKey
	}
	now := l.now()
	detail := KeyDetail{
		KeyState: l.s.inspect(line, now), API: api, Stream: partition.Name(), Instance: d.opts.Instance,
		Next: l.s.firstJobs(line, min(max(limit, 1), MaxInspected), now),
	}
	l.mu.Unlock()
	for i := range detail.Next {
		j := &detail.Next[i]
		if j.Job != "" {
			continue
		}
		entry, err := partition.Get(ctx, j.Seq)
		if ctx.Err() != nil {
			return KeyDetail{}, fmt.Errorf("jobs of %s: %w", key, context.Cause(ctx))
		}
		if err == nil { // otherwise it has ended meanwhile
			j.Job = entry.Header.Get(ingest.HeaderJobID)
		}
	}
	return detail, nil
}

// Quiet reports whether no call of an api is running and the outcome of every one is stored, also of those that were found
// at the start: the ledger then knows all
// that was called. It looks at every key that has jobs.
func (d *Dispatcher) Quiet(api string) bool {
	l := d.lane(api)
	if l == nil {
		return true
	}
	seen := 0
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.findingLocked() {
		return false
	}
	for _, line := range l.s.lines {
		if line.count(granted, calling, settling) > 0 {
			return false
		}
		l.breathe(&seen)
	}
	return true
}

// keyDepth is what choosing the deepest keys needs.
type keyDepth struct {
	key   string
	depth int
}

func byDepth(a, b int, aKey, bKey string) int {
	return cmp.Or(cmp.Compare(b, a), strings.Compare(aKey, bKey))
}

// deepest chooses the limit deepest keys. The lock is let go between every few lines: Go's range over a map goes on
// rightly when the map has changed meanwhile, and keys that came or went may be in the answer or not.
func (l *lane) deepest(limit int) []keyDepth {
	var top []keyDepth
	seen, least := 0, 0
	l.mu.Lock()
	for key, line := range l.s.lines {
		if depth := line.depth(); depth > 0 && depth >= least {
			top = append(top, keyDepth{key, depth})
		}
		if seen++; seen%lookAtOnce == 0 {
			l.mu.Unlock()
			if top = keepDeepest(top, limit); len(top) == limit {
				least = top[limit-1].depth
			}
			l.mu.Lock()
		}
	}
	l.mu.Unlock()
	return keepDeepest(top, limit)
}

func keepDeepest(top []keyDepth, limit int) []keyDepth {
	slices.SortFunc(top, func(a, b keyDepth) int { return byDepth(a.depth, b.depth, a.key, b.key) })
	return top[:min(limit, len(top))]
}

// depth is the number of the line's unfinished jobs.
func (l *line) depth() int { return l.waiting() + len(l.tasks) }

// inspect tells a line's state at now.
func (s *schedule) inspect(l *line, now bucket.Micros) KeyState {
	interval := s.rules.Interval(l.limits.Rate)
	return KeyState{
		Key: l.key, Depth: l.depth(), Capacity: l.limits.Capacity,
		InFlight: l.count(calling), MaxInFlight: l.limits.InFlight,
		Rate: RateState{
			Count: l.limits.Rate.Count, PerUS: l.limits.Rate.Per.Microseconds(), Burst: l.limits.Rate.Burst,
			IntervalUS: interval.Duration().Microseconds(),
		},
		WaitMS: waitMS(now, s.forecast(l, l.depth()+1-l.count(granted, calling, settling), now)),
		Waits:  s.waits(l, now),
	}
}

// waitMS is -1 when nobody can say.
func waitMS(now, at bucket.Micros) int64 {
	if at == never {
		return -1
	}
	return now.Until(at).Milliseconds()
}

// firstJobs lists a line's first jobs, in order.
func (s *schedule) firstJobs(l *line, limit int, now bucket.Micros) []JobState {
	jobs := make([]JobState, 0, min(limit, l.depth()))
	tasks, more, first := l.tasks, l.more, l.first
	without := 0 // jobs so far that have no slot
	for len(jobs) < limit && (len(tasks) > 0 || first != 0) {
		j := JobState{Position: len(jobs) + 1}
		eta := never
		if len(tasks) > 0 && (first == 0 || tasks[0].seq < first) {
			t := tasks[0]
			tasks = tasks[1:]
			j.Seq, j.Calls, j.Phase = t.seq, t.calls, t.inspect()
			if t.job != nil {
				j.Job = t.job.ID
			}
			switch t.phase {
			case calling, settling:
			case granted:
				eta = t.at
			default:
				without++
				eta = max(t.notBefore, s.forecast(l, without, now))
			}
		} else {
			without++
			j.Seq, j.Phase, eta = first, JobWaits, s.forecast(l, without, now)
			j.Job = l.part.keptID(first)
			if first = 0; len(more) > 0 {
				first, more = more[0], more[1:]
			}
		}
		if eta < never-1 {
			at := eta.Time()
			j.ETA = &at
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func (t *task) inspect() JobPhase {
	switch t.phase {
	case resting:
		if t.calls > 0 {
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

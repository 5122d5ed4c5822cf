package schedule

import (
	"slices"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
)

// spot returns the job's place among all jobs of its key.
func (j *Job) spot() backlog.Spot { return backlog.Spot{Place: j.place, Of: j.Priority, At: j.tag} }

// insert adds a Job at its place. It keeps the jobs of a priority in the order of their places, even if their tags were
// computed with other weights.
func (q *KeyQueue) insert(j *Job) {
	s := j.spot()
	if !q.waits.IsMixed() {
		i, _ := slices.BinarySearchFunc(q.Jobs, s, func(j *Job, s backlog.Spot) int { return j.place.Compare(s.Place) })
		q.Jobs = slices.Insert(q.Jobs, i, j)
		return
	}
	least, most := 0, len(q.Jobs)
	for i, other := range q.Jobs {
		switch {
		case other.Priority != j.Priority:
		case other.place.Compare(j.place) < 0:
			least = i + 1
		default:
			most = min(most, i)
		}
	}
	for most > least && s.Compare(q.Jobs[most-1].spot()) < 0 {
		most--
	}
	q.Jobs = slices.Insert(q.Jobs, most, j)
}

// Behind returns how many of the key's jobs in the schedule would be called after a new job of priority p. The new job
// must not be called before at; at is 0 if it may be called at once.
func (v View) Behind(key string, at bucket.Micros, p bucket.Priority) (n int) {
	q := v.s.byKey[key]
	if q == nil {
		return 0
	}
	if at > v.now {
		return q.waits.NotDueAt(at)
	}
	n = q.waits.NotDueAt(v.now)
	if !q.waits.IsMixed() && p == bucket.Normal {
		return n
	}
	waiting, tag := q.waits.Behind(p, v.s.policy.Rules.Weights)
	n += waiting
	for _, j := range q.Jobs {
		if j.Priority != p && j.Phase < granted && j.spot().Compare(backlog.Spot{Of: p, At: tag}) > 0 {
			n++
		}
	}
	return n
}

// tidy drops what a queue keeps for other priorities if it has only normal jobs again.
func (s *step) tidy(q *KeyQueue) {
	if _, idle := q.seats.IsIdle(); !idle {
		return
	}
	if slices.ContainsFunc(q.Jobs, func(j *Job) bool { return j.Priority != bucket.Normal || j.turnOf() != bucket.Normal }) {
		return
	}
	if !q.waits.Unmix(q.Empty()) {
		return
	}
	s.turns.LeaveClasses(q)
	for _, j := range q.Jobs {
		j.tag = 0 // the jobs are in order without tags
	}
}

// classSet is a set of priorities.
type classSet uint8

const allClasses classSet = 1<<len(bucket.Priorities) - 1

func (s classSet) has(p bucket.Priority) bool { return s>>(p-bucket.High)&1 != 0 }

func (s classSet) with(p bucket.Priority) classSet { return s | 1<<(p-bucket.High) }

func (s classSet) without(p bucket.Priority) classSet { return s &^ (1 << (p - bucket.High)) }

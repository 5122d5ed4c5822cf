package schedule

import (
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
)

// Jobs holds the jobs of a key that are near their call or past it, in the order of their calls.
type Jobs []*Job

// count returns the number of jobs in any of these phases.
func (all Jobs) count(phases ...Phase) int { return all.countOf(allClasses, phases...) }

// countOf is count for the jobs that take the turns of these priorities.
func (all Jobs) countOf(some classSet, phases ...Phase) int {
	var wanted uint // a bit for each
	for _, p := range phases {
		wanted |= 1 << p
	}
	n := 0
	for _, j := range all {
		if some.has(j.turnOf()) {
			n += int(wanted >> j.Phase & 1)
		}
	}
	return n
}

// ungranted returns the number of jobs that are on their way to a slot and have none yet.
func (all Jobs) ungranted() int { return all.count(staging, ready, asking) }

// Busy reports whether a call runs, is about to start, or has an outcome that is not stored yet.
func (all Jobs) Busy() bool { return all.count(granted, calling, settling) > 0 }

// sending reports whether a call has started and not left yet.
func (all Jobs) sending() bool {
	for _, j := range all {
		if j.Phase == calling && j.Unsent {
			return true
		}
	}
	return false
}

// nextStart returns the time of the next granted call, Never if there is none.
func (all Jobs) nextStart() bucket.Micros {
	next := Never
	if all.sending() {
		return Never // Sent touches the queue
	}
	for _, j := range all {
		if j.Phase == granted {
			next = min(next, j.At)
		}
	}
	return next
}

// lastGranted returns the latest slot that a job waits for, 0 if none does.
func (all Jobs) lastGranted() bucket.Micros {
	var last bucket.Micros
	for _, j := range all {
		if j.Phase == granted {
			last = max(last, j.At)
		}
	}
	return last
}

// newest returns the start of the newest call that runs or has a slot; 0 if there is none.
func (all Jobs) newest() bucket.Micros {
	var at bucket.Micros
	for _, j := range all {
		if j.Phase == granted || j.Phase == calling {
			at = max(at, j.At)
		}
	}
	return at
}

// nextFirst returns the first of the Jobs of a priority whose first call has not begun. It returns nil if the
// first such job is still in the backlog, or if there is none. A call that has started and not left counts as not
// begun, because it may be taken back. A lost call counts as not begun while it is not known whether it was made.
func (all Jobs) nextFirst(of bucket.Priority) *Job {
	for _, j := range all {
		if j.Priority != of {
			continue
		}
		if j.First() && j.Phase < calling || j.Phase == calling && j.Unsent || j.Phase == settling && j.Unseen {
			return j
		}
	}
	return nil
}

// flying counts the calls that run or have a slot, and returns when the first of them should end.
func (all Jobs) flying(took time.Duration) (n int64, first bucket.Micros) {
	first = Never
	for _, j := range all {
		if j.Phase == calling || j.Phase == granted {
			n, first = n+1, min(first, j.At.Add(took))
		}
	}
	return n, first
}

// rouse lets those jobs be tried again that rest because of a hold or a limit.
func (all Jobs) rouse(now bucket.Micros) {
	for _, j := range all {
		if j.Phase == resting && j.limited {
			j.NotBefore = now
		}
	}
}

// Near yields the jobs that are near their call or past it, including the members of packs.
func (all Jobs) Near(yield func(*Job) bool) {
	for _, j := range all {
		if !yield(j) {
			return
		}
		for _, m := range j.members {
			if !yield(m) {
				return
			}
		}
	}
}

// overtakes reports whether the pack that a job leads would overtake another job. This happens if a job that comes
// before a never-called member left another pack after this pack was made. That job is called later than the pack. A
// pack with a bond cannot change, so overtakes ignores it.
func (all Jobs) overtakes(j *Job) bool {
	if !j.carries || j.Bond != nil {
		return false
	}
	var last backlog.Place
	for m := range j.firsts {
		last = m.place
	}
	return slices.ContainsFunc(all[slices.Index(all, j)+1:], func(other *Job) bool {
		if other.Priority != j.Priority || other.Phase >= asking {
			return false
		}
		for m := range other.firsts {
			return m.place.Compare(last) < 0
		}
		return false
	})
}

// Running yields the jobs whose calls run or whose outcomes are being stored, with the times of their slots.
func (all Jobs) Running(yield func(j JobState, began bucket.Micros) bool) {
	for _, j := range all {
		if j.Phase != calling && j.Phase != settling {
			continue
		}
		if !yield(JobState{Seq: j.Seq, Phase: j.inspect(), Calls: j.Calls, Priority: PriorityName(j.Priority)}, j.At) {
			return
		}
		for _, m := range j.members {
			if !yield(JobState{Seq: m.Seq, Phase: j.inspect(), Calls: m.Calls, Priority: PriorityName(m.Priority)}, j.At) {
				return
			}
		}
	}
}

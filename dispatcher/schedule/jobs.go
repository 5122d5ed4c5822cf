package schedule

import (
	"maps"
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

// nextFirst returns the first of the Jobs of a priority whose first call has not begun, nil if there is none. A call
// that has started and not left counts as not begun, because it may be taken back. A lost call counts as not begun while
// it is not known whether it was made.
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

// If the api has begun an operation with a job's call, the job is polled until the operation has ended. The schedule
// never calls it again. It keeps such jobs apart from those near their call: there may be many, and no step looks at
// them. If an operation holds its slot, it counts as a call in flight of its key until it has ended.

// MaxPolled bounds the operations under way. At the bound no call starts, because it might begin another operation.
const MaxPolled = 1 << 16

// polling counts the operations of a schedule.
type polling struct {
	jobs      int
	held      int    // operations that hold their slots, including those whose end is being stored
	cancelled []*Job // jobs that an operator cancelled since the last step
}

// isFull reports whether no more operations may begin.
func (p *polling) isFull() bool { return p.jobs >= MaxPolled }

// Submit lets a job be polled that is settling or was found in the stream. holds says that its operation holds its
// slot.
func (s *Schedule) Submit(j *Job, holds bool) {
	q := j.Queue
	s.Holds.breaker.letGo(j)
	s.suspects.clear(j, &s.Queues)
	s.Pipe.settled(j)
	if i := slices.Index(q.Jobs, j); i >= 0 {
		q.Jobs = slices.Delete(q.Jobs, i, i+1)
	}
	if q.polled == nil {
		q.polled = operations{}
	}
	q.polled[j.Seq] = j
	j.Phase, j.cancelled = polled, false
	s.Pipe.polling.jobs++
	if holds {
		s.Pipe.KeepSlot(j)
	}
	j.unload()
	s.Queues.Touch(q)
}

// EndPolled marks a polled job as settling, because its operation has ended or is given up. It returns false if the job
// is not polled any more: its end is already being stored, or its partition was lost.
func (s *Schedule) EndPolled(j *Job) bool {
	q := j.Queue
	if !j.IsPolled() {
		return false
	}
	delete(q.polled, j.Seq)
	s.Pipe.polling.jobs--
	j.Phase = settling
	q.insert(j)
	s.Queues.Touch(q)
	return true
}

// letGo stops counting a job's operation among those that hold their slots, and reports whether it did: another call
// may have the slot.
func (p *polling) letGo(j *Job) (did bool) {
	if did = j.holds; did {
		j.holds = false
		j.Queue.held--
		p.held--
	}
	return did
}

// forget drops the polled jobs of a queue whose partition this process no longer owns, and returns how many there were.
func (p *polling) forget(q *KeyQueue) int {
	n := len(q.polled)
	for _, j := range q.polled {
		p.letGo(j)
	}
	p.jobs -= n
	q.polled = nil
	return n
}

// IsPolled reports whether the api has accepted the job, its operation has not ended, and this process still owns its
// partition.
func (j *Job) IsPolled() bool { return j.Queue.polled[j.Seq] == j }

// IsCancelled reports whether an operator has cancelled the job, and the job has not ended.
func (j *Job) IsCancelled() bool { return j.cancelled }

// Polled yields the queue's polled jobs, in no order.
func (q *KeyQueue) Polled(yield func(*Job) bool) { q.polled.all(yield) }

// operations holds the polled jobs of a queue, by sequence.
type operations map[uint64]*Job

// all yields the jobs, in no order.
func (o operations) all(yield func(*Job) bool) {
	for _, j := range o {
		if !yield(j) {
			return
		}
	}
}

// first lists at most most of the jobs, those with the least sequences, in order.
func (o operations) first(most int) (jobs []*Job) {
	seqs := slices.Sorted(maps.Keys(o))
	for _, seq := range seqs[:min(len(seqs), max(0, most))] {
		jobs = append(jobs, o[seq])
	}
	return jobs
}

// MostDeaths is how many owners in a row may die with a call of one job under way before the job is parked. Intents
// count the deaths. If the api is not idempotent, the first death parks the job, because its call cannot be repeated.
// If the api is idempotent, the job may be innocent, because anything may have killed its owner. So one death does not
// make a job a suspect. A job is parked only after several deaths, and in the last of these no other suspect's call was
// under way.
const (
	suspectFrom = 2
	aloneFrom   = 3
	MostDeaths  = 5
)

// manySuspects bounds the suspects that are called at the same time.
const manySuspects = 16

// suspects holds jobs whose call was under way when two owners died: one of the jobs may have killed both. They are
// called a few at a time. A job whose call was under way when three owners died is called alone, so that the next death
// tells which job caused it. Only a job that was called alone is parked.
type suspects struct {
	underWay map[*Job]struct{} // suspects that are being made ready or called
	alone    *Job              // the suspect beside which no other may be called
	waiting  []*KeyQueue       // queues with a suspect that waits, each listed once
}

// mayCall reports whether suspicion lets a resting job be made ready. If not, it notes that the job's queue waits for
// another suspect.
func (s *suspects) mayCall(j *Job) bool {
	switch {
	case j.Deaths < suspectFrom,
		s.alone == nil && j.Deaths < aloneFrom && len(s.underWay) < manySuspects,
		s.alone == nil && len(s.underWay) == 0:
		return true
	}
	if q := j.Queue; !q.entry.suspect {
		q.entry.suspect = true
		s.waiting = append(s.waiting, q)
	}
	return false
}

func (s *suspects) call(j *Job) {
	if j.Deaths < suspectFrom {
		return
	}
	if s.underWay == nil {
		s.underWay = map[*Job]struct{}{}
	}
	s.underWay[j] = struct{}{}
	if j.Deaths >= aloneFrom {
		s.alone = j
	}
}

// clear notes that a suspect rests again or has ended, so that the next one may be called.
func (s *suspects) clear(j *Job, queues *Queues) {
	if _, ok := s.underWay[j]; !ok {
		return
	}
	delete(s.underWay, j)
	if s.alone == j {
		s.alone = nil
	}
	waiting := s.waiting
	s.waiting = nil
	for _, q := range waiting {
		q.entry.suspect = false
		queues.Touch(q)
	}
}

package schedule

import (
	"maps"
	"slices"
)

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
	s.suspects.clear(j, &s.agenda)
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
	s.Touch(q)
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
	s.Touch(q)
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

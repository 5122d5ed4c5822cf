package schedule

import (
	"container/heap"
	"iter"
	"maps"
	"time"

	"weir/bucket"
)

// Never is a time that never comes.
const Never = bucket.Never

// maxLapsing bounds the waiting jobs that may be ending at the same time because their deadlines have passed. The
// dispatcher loads each of them for its letter.
const maxLapsing = 64

// Queues holds the queues of all keys. It says which of them the schedule must look at, and when: at once, at a time,
// or when a job that is ending because of its deadline has ended. It owns the entry of every queue. There is one timer
// structure over all queues and no timer per key. It also converts between the wall clock and the schedule's clock.
type Queues struct {
	byKey map[string]*KeyQueue
	ahead bucket.Micros // how far the wall clock is ahead of now: see FollowWall

	all     []*KeyQueue // the queues of all keys; unlike a map's, their order is the same in every run
	timers  timers
	active  []*KeyQueue // to look at once, each listed once
	lapsing []*KeyQueue // with more jobs past their deadlines than may end at the same time, each listed once
	ending  int         // jobs that are ending because their deadlines have passed
}

// entry is a queue's place in Queues.
type entry struct {
	due     bucket.Micros // when its timer fires
	place   int32         // its index in timers, notTimed if it has no timer
	listed  int32         // its index in all
	active  bool
	lapsing bool
	looks   bool // in the list of looks
	suspect bool // in the list of suspects that wait
	dropped bool // the queue is dropped: it is never listed again, even if something else still refers to it
}

// isIdle reports whether the queue is listed nowhere but in the timers.
func (e *entry) isIdle() bool { return !e.active && !e.lapsing && !e.looks }

// Touch lists a queue, so that the schedule looks at it at once.
func (qs *Queues) Touch(q *KeyQueue) {
	if !q.entry.active && !q.entry.dropped {
		q.entry.active = true
		qs.active = append(qs.active, q)
	}
}

// touchAll touches all queues, so that the schedule looks at each of them without delay.
func (qs *Queues) touchAll() {
	for _, q := range qs.all {
		qs.Touch(q)
	}
}

// add adds a key's queue.
func (qs *Queues) add(q *KeyQueue) {
	q.entry.listed = int32(len(qs.all)) //nolint:gosec // two billion queues do not fit in memory
	qs.all = append(qs.all, q)
}

// drop removes a key's queue. The last queue takes its place.
func (qs *Queues) drop(q *KeyQueue) {
	last := len(qs.all) - 1
	qs.all[q.entry.listed] = qs.all[last]
	qs.all[q.entry.listed].entry.listed = q.entry.listed
	qs.all[last] = nil
	qs.all = qs.all[:last]
}

// next takes the queue that was listed first. At least one must be listed.
func (qs *Queues) next() *KeyQueue {
	q := qs.active[0]
	qs.active[0] = nil
	qs.active = qs.active[1:]
	q.entry.active = false
	return q
}

// due takes a queue whose time has come, nil if there is none.
func (qs *Queues) due(now bucket.Micros) *KeyQueue {
	if qs.timers.next() > now {
		return nil
	}
	q := qs.timers[0]
	qs.timers.set(q, Never)
	return q
}

// mayLapse reports whether one more job may end because of its deadline. If not, it lists the queue. The schedule looks
// at the queue again when another such job has ended.
func (qs *Queues) mayLapse(q *KeyQueue) bool {
	if qs.ending < maxLapsing {
		return true
	}
	if !q.entry.lapsing {
		q.entry.lapsing = true
		qs.lapsing = append(qs.lapsing, q)
	}
	return false
}

// canLapse reports whether a queue that had too many jobs past their deadlines may end more of them.
func (qs *Queues) canLapse() bool { return len(qs.lapsing) > 0 && qs.ending < maxLapsing }

// nextLapsing takes the queue that has waited longest to end more jobs. At least one must be waiting.
func (qs *Queues) nextLapsing() *KeyQueue {
	q := qs.lapsing[0]
	qs.lapsing[0] = nil
	qs.lapsing = qs.lapsing[1:]
	q.entry.lapsing = false
	return q
}

// lapse counts a waiting job that ends now because its deadline has passed.
func (qs *Queues) lapse(j *Job) {
	j.lapsed = true
	qs.ending++
}

// ended stops counting a job that lapse counted, because it has ended.
func (qs *Queues) ended(j *Job) {
	if j.lapsed {
		qs.ending--
	}
}

// All yields the queues of all keys that have jobs, or whose state must be remembered. If the caller releases the
// lock during the iteration, All may yield or omit a queue that is added or dropped meanwhile.
func (qs *Queues) All() iter.Seq[*KeyQueue] { return maps.Values(qs.byKey) }

// Find returns the queue of a key, nil if there is none.
func (qs *Queues) Find(key string) *KeyQueue { return qs.byKey[key] }

// OpenPartition lets the jobs of a partition be called.
func (qs *Queues) OpenPartition(p *Partition) {
	p.Open = true
	for _, q := range qs.all {
		if q.Partition == p {
			qs.Touch(q)
		}
	}
}

// timers is a heap of queues, ordered by the time at which the schedule must look at each. Setting or taking an entry
// costs O(log n) in the number of queues with a timer.
type timers []*KeyQueue

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].entry.due < t[j].entry.due }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].entry.place, t[j].entry.place = int32(i), int32(j)
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	q := x.(*KeyQueue)
	q.entry.place = int32(len(*t))
	*t = append(*t, q)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	q := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	q.entry.place = notTimed
	return q
}

const notTimed = -1

// set makes the queue due at a time. Never removes it from the timers.
func (t *timers) set(q *KeyQueue, at bucket.Micros) {
	switch {
	case at == Never && q.entry.place == notTimed:
	case at == Never:
		heap.Remove(t, int(q.entry.place))
	case q.entry.place == notTimed:
		q.entry.due = at
		heap.Push(t, q)
	case q.entry.due != at:
		q.entry.due = at
		heap.Fix(t, int(q.entry.place))
	}
}

// next returns when the first queue is due.
func (t timers) next() bucket.Micros {
	if len(t) == 0 {
		return Never
	}
	return t[0].entry.due
}

// Deadlines, and the times before which jobs must not be called, are times of the wall clock. The schedule keeps them
// as times of its own clock, which cannot be set. When the wall clock is set, it moves all of them. Their order stays
// the same.

// wallStep is by how much the wall clock must have been set before the schedule moves the times. A wall clock that is
// slewed thus moves them rarely: each move takes time for every waiting job.
const wallStep = time.Second

// FollowWall tells the schedule how far the wall clock is ahead of the schedule's clock.
func (qs *Queues) FollowWall(ahead bucket.Micros) {
	if qs.ahead.Until(ahead).Abs() < wallStep {
		return
	}
	by := qs.ahead - ahead
	qs.ahead = ahead
	parts := map[*Partition]struct{}{}
	for _, q := range qs.all {
		parts[q.Partition] = struct{}{}
		q.waits.Move(by)
		for j := range q.Jobs.Near {
			j.move(by)
		}
		for j := range q.Polled {
			j.move(by)
		}
		qs.Touch(q)
	}
	for p := range parts {
		for seq := range p.deadlines {
			p.deadlines[seq] += by
		}
	}
}

// Own returns what the schedule's clock says when the wall clock says at.
func (qs *Queues) Own(at bucket.Micros) bucket.Micros { return at - qs.ahead }

// Wall returns what the wall clock says when the schedule's clock says at.
func (qs *Queues) Wall(at bucket.Micros) bucket.Micros { return at + qs.ahead }

// move shifts a job's deadline and due time.
func (j *Job) move(by bucket.Micros) {
	if j.Deadline != 0 {
		j.Deadline += by
	}
	j.place.Move(by)
}

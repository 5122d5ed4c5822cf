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

// agenda says which queues the schedule must look at, and when. It looks at a queue at once, at a time, or when a job
// that is ending because of its deadline has ended. The agenda owns the entry of every queue. There is one timer
// structure over all queues and no timer per key. The agenda also keeps the clock by which the schedule looks.
type agenda struct {
	byKey   map[string]*KeyQueue
	ahead   bucket.Micros // how far the wall clock is ahead of now: see FollowWall
	all     []*KeyQueue   // the queues of all keys; unlike a map's, their order is the same in every run
	timers  timers
	active  []*KeyQueue // to look at once, each listed once
	lapsing []*KeyQueue // with more jobs past their deadlines than may end at the same time, each listed once
	ending  int         // jobs that are ending because their deadlines have passed
}

// entry is a queue's place in the agenda.
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
func (a *agenda) Touch(q *KeyQueue) {
	if !q.entry.active && !q.entry.dropped {
		q.entry.active = true
		a.active = append(a.active, q)
	}
}

// touchAll touches all queues, so that the schedule looks at each of them without delay.
func (a *agenda) touchAll() {
	for _, q := range a.all {
		a.Touch(q)
	}
}

// add adds a key's queue.
func (a *agenda) add(q *KeyQueue) {
	q.entry.listed = int32(len(a.all)) //nolint:gosec // two billion queues do not fit in memory
	a.all = append(a.all, q)
}

// drop removes a key's queue. The last queue takes its place.
func (a *agenda) drop(q *KeyQueue) {
	last := len(a.all) - 1
	a.all[q.entry.listed] = a.all[last]
	a.all[q.entry.listed].entry.listed = q.entry.listed
	a.all[last] = nil
	a.all = a.all[:last]
}

// next takes the queue that was listed first. At least one must be listed.
func (a *agenda) next() *KeyQueue {
	q := a.active[0]
	a.active[0] = nil
	a.active = a.active[1:]
	q.entry.active = false
	return q
}

// due takes a queue whose time has come, nil if there is none.
func (a *agenda) due(now bucket.Micros) *KeyQueue {
	if a.timers.next() > now {
		return nil
	}
	q := a.timers[0]
	a.timers.set(q, Never)
	return q
}

// mayLapse reports whether one more job may end because of its deadline. If not, it lists the queue. The schedule looks
// at the queue again when another such job has ended.
func (a *agenda) mayLapse(q *KeyQueue) bool {
	if a.ending < maxLapsing {
		return true
	}
	if !q.entry.lapsing {
		q.entry.lapsing = true
		a.lapsing = append(a.lapsing, q)
	}
	return false
}

// canLapse reports whether a queue that had too many jobs past their deadlines may end more of them.
func (a *agenda) canLapse() bool { return len(a.lapsing) > 0 && a.ending < maxLapsing }

// nextLapsing takes the queue that has waited longest to end more jobs. At least one must be waiting.
func (a *agenda) nextLapsing() *KeyQueue {
	q := a.lapsing[0]
	a.lapsing[0] = nil
	a.lapsing = a.lapsing[1:]
	q.entry.lapsing = false
	return q
}

// lapse counts a waiting job that ends now because its deadline has passed.
func (a *agenda) lapse(j *Job) {
	j.lapsed = true
	a.ending++
}

// ended stops counting a job that lapse counted, because it has ended.
func (a *agenda) ended(j *Job) {
	if j.lapsed {
		a.ending--
	}
}

// Queues yields the queues of all keys that have jobs, or whose state must be remembered. If the caller releases the
// lock during the iteration, Queues may yield or omit a queue that is added or dropped meanwhile.
func (a *agenda) Queues() iter.Seq[*KeyQueue] { return maps.Values(a.byKey) }

// Find returns the queue of a key, nil if there is none.
func (a *agenda) Find(key string) *KeyQueue { return a.byKey[key] }

// OpenPartition lets the jobs of a partition be called.
func (a *agenda) OpenPartition(p *Partition) {
	p.Open = true
	for _, q := range a.all {
		if q.Partition == p {
			a.Touch(q)
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
func (a *agenda) FollowWall(ahead bucket.Micros) {
	if a.ahead.Until(ahead).Abs() < wallStep {
		return
	}
	by := a.ahead - ahead
	a.ahead = ahead
	parts := map[*Partition]struct{}{}
	for _, q := range a.all {
		parts[q.Partition] = struct{}{}
		q.waits.Move(by)
		for j := range q.Jobs.Near {
			j.move(by)
		}
		for j := range q.Polled {
			j.move(by)
		}
		a.Touch(q)
	}
	for p := range parts {
		for seq := range p.deadlines {
			p.deadlines[seq] += by
		}
	}
}

// Own returns what the schedule's clock says when the wall clock says at.
func (a *agenda) Own(at bucket.Micros) bucket.Micros { return at - a.ahead }

// Wall returns what the wall clock says when the schedule's clock says at.
func (a *agenda) Wall(at bucket.Micros) bucket.Micros { return at + a.ahead }

// move shifts a job's deadline and due time.
func (j *Job) move(by bucket.Micros) {
	if j.Deadline != 0 {
		j.Deadline += by
	}
	j.place.Move(by)
}

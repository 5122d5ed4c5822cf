package schedule

import (
	"container/heap"
	"math"

	"weir/bucket"
)

// Never is a time that does not come.
const Never = bucket.Micros(math.MaxInt64)

// timers is the one timer structure over all keys of an api: a heap by the time at which something must be done
// for the key. Setting and taking cost O(log n) in the number of keys that wait.
type timers []*KeyQueue

func (t timers) Len() int           { return len(t) }
func (t timers) Less(i, j int) bool { return t[i].due < t[j].due }

func (t timers) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].place, t[j].place = int32(i), int32(j)
}

// Push implements heap.Interface.
func (t *timers) Push(x any) {
	q := x.(*KeyQueue)
	q.place = int32(len(*t))
	*t = append(*t, q)
}

// Pop implements heap.Interface.
func (t *timers) Pop() any {
	last := len(*t) - 1
	q := (*t)[last]
	(*t)[last] = nil
	*t = (*t)[:last]
	q.place = notTimed
	return q
}

const notTimed = -1

// set makes the queue due at a time; Never removes it.
func (t *timers) set(q *KeyQueue, at bucket.Micros) {
	switch {
	case at == Never && q.place == notTimed:
	case at == Never:
		heap.Remove(t, int(q.place))
	case q.place == notTimed:
		q.due = at
		heap.Push(t, q)
	case q.due != at:
		q.due = at
		heap.Fix(t, int(q.place))
	}
}

// next returns when the first queue is due.
func (t timers) next() bucket.Micros {
	if len(t) == 0 {
		return Never
	}
	return t[0].due
}

package turns

import "container/heap"

// line is one of the two lines in which queues wait for their turn at the shared limits.
type line int8

const (
	askLine     line = iota // of queues with a ready job, or a running call: they will ask
	prepareLine             // of queues without one: they will make one ready
)

// notWaiting is the place in a line that stands for a tenant without waiting queues.
const notWaiting = 0

// tenantHeap is a line. It holds the tenants with queues that wait in the line, ordered by what they have taken plus
// what the line has lent them, then by when they came.
type tenantHeap[Q any] struct {
	line   line
	queues int // how many queues wait in it
	all    []*tenant[Q]
}

func (h *tenantHeap[Q]) reorder(t *tenant[Q]) {
	if place := t.in[h.line].place; place != notWaiting {
		heap.Fix(h, place-1)
	}
}

func (h *tenantHeap[Q]) Len() int { return len(h.all) }

func (h *tenantHeap[Q]) Less(i, j int) bool {
	a, b := &h.all[i].in[h.line], &h.all[j].in[h.line]
	x, y := h.all[i].virtualTime+a.lent, h.all[j].virtualTime+b.lent
	return x < y || x == y && a.came < b.came
}

func (h *tenantHeap[Q]) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.all[i].in[h.line].place, h.all[j].in[h.line].place = i+1, j+1
}

// Push implements heap.Interface.
func (h *tenantHeap[Q]) Push(x any) {
	t := x.(*tenant[Q])
	h.all = append(h.all, t)
	t.in[h.line].place = len(h.all)
}

// Pop implements heap.Interface.
func (h *tenantHeap[Q]) Pop() any {
	last := len(h.all) - 1
	t := h.all[last]
	h.all[last] = nil
	h.all = h.all[:last]
	t.in[h.line].place = notWaiting
	return t
}

// turn is a waiting queue with the virtual time that it had when it came. The queue with the least virtual time is
// first. Among queues with the same virtual time, the one that came first is first.
type turn[Q any] struct {
	virtualTime ServiceTime
	came        uint64
	queue       Q
}

func (t turn[Q]) before(other turn[Q]) bool {
	return t.virtualTime < other.virtualTime || t.virtualTime == other.virtualTime && t.came < other.came
}

// turnHeap holds the waiting queues of a tenant. It holds them as values, so that a waiting queue needs no allocation.
type turnHeap[Q any] []turn[Q]

func (h *turnHeap[Q]) push(t turn[Q]) {
	*h = append(*h, t)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if !(*h)[i].before((*h)[up]) {
			return
		}
		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}

// pop takes the first turn. The heap must not be empty.
func (h *turnHeap[Q]) pop() turn[Q] {
	first, last := (*h)[0], len(*h)-1
	(*h)[0] = (*h)[last]
	(*h)[last] = turn[Q]{}
	*h = (*h)[:last]
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if (*h)[down].before((*h)[least]) {
				least = down
			}
		}
		if least == i {
			return first
		}
		(*h)[i], (*h)[least] = (*h)[least], (*h)[i]
		i = least
	}
}

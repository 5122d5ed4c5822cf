package schedule

import (
	"container/heap"
	"iter"
)

// serviceTime is how long a call uses up the shared limit that it burdens most, in microseconds; 1 if keys share
// nothing. So a call that takes 20 tokens of a thousand a second weighs as much as two that take one permit of a
// hundred. This is the dominant share of Ghodsi and others (NSDI 2011), counted in time.
type serviceTime int64

const mostServiceTime = serviceTime(1) << 44 // half a year: sums of any number of them stay far from overflow

// tenant groups the keys that share a turn: all keys of an api if no tenants are named.
type tenant struct {
	name   string
	queues int // that belong to it

	virtualTime serviceTime // what its calls have taken: its place among the tenants
	clock       serviceTime // virtual time of its queue that was granted a slot last
	in          [2]standing // in each line
	queued      []*KeyQueue // its queues that wait for room, in order
}

// line is one of the two lines in which queues wait for their turn at the shared limits. A queue stands in at
// most one of them. Both give the turn in the same order.
type line int8

const (
	readyLine line = iota // of queues with a ready job: they will ask
	roomLine              // of queues without one: they will make one ready
)

// standing is a tenant's place in a line.
type standing struct {
	lent    serviceTime // to its queues that have the turn and no slot yet
	came    uint64
	place   int // among the tenants that wait, counted from 1; notWaiting when it does not
	blocked turnHeap
}

// waits reports whether a queue of the tenant stands in either line.
func (t *tenant) waits() bool {
	return t.in[readyLine].place != notWaiting || t.in[roomLine].place != notWaiting
}

// fairQueue orders the queues that wait for a shared limit, or for a call to end, by when each may ask again. It
// uses start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), first among tenants and then among the
// queues of one. The tenant or queue that has taken least is next; one that was away gets no credit for it.
// Unlike a deficit round robin, it does not make a costly call wait for its quantum to add up. A turn costs
// O(log n) in the queues that wait.
type fairQueue struct {
	tenants tenantHeap
	clock   serviceTime // virtual time of the tenant that was granted a slot last
	size    int
	coming  uint64
}

// push makes a queue wait for its turn, unless it already waits.
func (w *fairQueue) push(q *KeyQueue) {
	if q.blocked {
		return
	}
	q.blocked, q.line = true, w.tenants.line
	t := q.tenant
	in := &t.in[w.tenants.line]
	q.virtualTime = max(q.virtualTime, t.clock)
	if q.came == 0 {
		w.coming++
		q.came = w.coming
	}
	if !t.waits() {
		t.virtualTime = max(t.virtualTime, w.clock)
	}
	if in.place == notWaiting {
		in.came = q.came
		heap.Push(&w.tenants, t)
	}
	in.blocked.push(turn{q.virtualTime, q.came, q})
	w.size++
}

// pop gives the turn to the queue that has waited longest, measured in service times, nil if none waits. It
// lends the queue what the queue's last call took, so that the next turn is another tenant's.
func (w *fairQueue) pop() *KeyQueue {
	if w.tenants.Len() == 0 {
		return nil
	}
	in := &w.tenants.all[0].in[w.tenants.line]
	q := in.next()
	q.blocked = false
	w.size--
	if len(in.blocked) == 0 {
		heap.Pop(&w.tenants)
	}
	w.lend(q, max(q.lastService, 1))
	return q
}

// next takes the queue that has taken least. It counts now what a queue was granted while it waited.
func (in *standing) next() *KeyQueue {
	for {
		first := in.blocked.pop()
		if first.queue.virtualTime <= first.virtualTime {
			return first.queue
		}
		in.blocked.push(turn{first.queue.virtualTime, first.came, first.queue})
	}
}

// lend sets what a queue has been lent of its tenant's turn.
func (w *fairQueue) lend(q *KeyQueue, d serviceTime) {
	l := w.tenants.line
	q.tenant.in[l].lent += d - q.lent[l]
	q.lent[l] = d
	w.reorder(q.tenant)
}

// took books what a queue was granted, and takes back what it was lent.
func (w *fairQueue) took(q *KeyQueue, d serviceTime) {
	t := q.tenant
	if d > 0 {
		w.clock, t.clock = max(w.clock, t.virtualTime), max(t.clock, q.virtualTime)
		t.virtualTime, q.virtualTime, q.came = t.virtualTime+d, q.virtualTime+d, 0
	}
	w.lend(q, 0)
}

func (w *fairQueue) reorder(t *tenant) {
	if place := t.in[w.tenants.line].place; place != notWaiting {
		heap.Fix(&w.tenants, place-1)
	}
}

// seat places a queue that asks without having waited: no further ahead than the queues that are being called.
func (w *fairQueue) seat(q *KeyQueue) {
	q.virtualTime = max(q.virtualTime, q.tenant.clock)
	if !q.tenant.waits() {
		q.tenant.virtualTime = max(q.tenant.virtualTime, w.clock)
	}
}

// forget removes the queues of a partition that this process does not own any more.
func (w *fairQueue) forget(p *Partition) {
	all := w.tenants.all
	w.tenants.all = nil
	for _, t := range all {
		in := &t.in[w.tenants.line]
		in.place = notWaiting
		waiting := in.blocked
		in.blocked = nil
		for _, x := range waiting {
			if x.queue.Partition == p {
				x.queue.blocked = false
				w.size--
				continue
			}
			in.blocked.push(x)
		}
		if len(in.blocked) > 0 {
			heap.Push(&w.tenants, t)
		}
	}
}

// all yields the queues that wait, in no order.
func (w *fairQueue) all() iter.Seq[*KeyQueue] {
	return func(yield func(*KeyQueue) bool) {
		for _, t := range w.tenants.all {
			for _, turn := range t.in[w.tenants.line].blocked {
				if !yield(turn.queue) {
					return
				}
			}
		}
	}
}

// roundRobin holds the queues that wait for room to make a job ready. Tenants take turns, one job each, and so
// do the queues of a tenant.
type roundRobin struct {
	tenants []*tenant
	size    int
}

// push makes a queue wait for room, unless it already waits.
func (r *roundRobin) push(q *KeyQueue) {
	if q.queued {
		return
	}
	q.queued = true
	t := q.tenant
	if len(t.queued) == 0 {
		r.tenants = append(r.tenants, t)
	}
	t.queued = append(t.queued, q)
	r.size++
}

// pop takes the queue whose turn it is. At least one queue must wait.
func (r *roundRobin) pop() *KeyQueue {
	t := r.tenants[0]
	r.tenants[0] = nil
	r.tenants = r.tenants[1:]
	q := t.queued[0]
	t.queued[0] = nil
	t.queued = t.queued[1:]
	if len(t.queued) > 0 {
		r.tenants = append(r.tenants, t)
	} else {
		t.queued = nil
	}
	r.size--
	q.queued = false
	return q
}

// tenants maps names to the tenants that have queues. A tenant lasts as long as it has any.
type tenants map[string]*tenant

// join gives a queue to the tenant of this name.
func (t tenants) join(q *KeyQueue, name string) {
	if t[name] == nil {
		t[name] = &tenant{name: name}
	}
	q.tenant = t[name]
	q.tenant.queues++
}

// leave takes a queue from its tenant.
func (t tenants) leave(q *KeyQueue) {
	if q.tenant.queues--; q.tenant.queues == 0 && t[q.tenant.name] == q.tenant {
		delete(t, q.tenant.name)
	}
	q.tenant = nil
}

// takeTurn lends a queue what its jobs are about to be asked for.
func (s *Schedule) takeTurn(q *KeyQueue, jobs []*Job) {
	if !q.called {
		s.blocked.seat(q)
	}
	q.called, q.lastService = false, s.shared.serviceTime(jobs[0].Costs)
	s.blocked.lend(q, q.lastService*serviceTime(len(jobs)))
}

// reseat clears all lines for new rules, since service times under new rules do not compare with earlier ones.
// The caller must then rebind every queue.
func (s *Schedule) reseat() {
	for _, t := range s.tenants { // queues not rebound yet still belong to them, and may leave meanwhile
		t.in, t.queued = [2]standing{}, nil
	}
	s.unprepared = fairQueue{tenants: tenantHeap{line: roomLine}}
	s.blocked, s.awaitingRoom, s.tenants = fairQueue{}, roundRobin{}, tenants{}
	s.shared = newSharedLimits(s.policy)
}

// notWaiting is the place of a tenant without waiting queues.
const notWaiting = 0

// tenantHeap holds the tenants that wait in a line, ordered by what they have taken and are lent, then by when
// they came.
type tenantHeap struct {
	line line
	all  []*tenant
}

func (h *tenantHeap) Len() int { return len(h.all) }

func (h *tenantHeap) Less(i, j int) bool {
	a, b := &h.all[i].in[h.line], &h.all[j].in[h.line]
	x, y := h.all[i].virtualTime+a.lent, h.all[j].virtualTime+b.lent
	return x < y || x == y && a.came < b.came
}

func (h *tenantHeap) Swap(i, j int) {
	h.all[i], h.all[j] = h.all[j], h.all[i]
	h.all[i].in[h.line].place, h.all[j].in[h.line].place = i+1, j+1
}

// Push implements heap.Interface.
func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	h.all = append(h.all, t)
	t.in[h.line].place = len(h.all)
}

// Pop implements heap.Interface.
func (h *tenantHeap) Pop() any {
	last := len(h.all) - 1
	t := h.all[last]
	h.all[last] = nil
	h.all = h.all[:last]
	t.in[h.line].place = notWaiting
	return t
}

// turn is a waiting queue with its virtual time when it came and its order of coming, which decides among
// equals.
type turn struct {
	virtualTime serviceTime
	came        uint64
	queue       *KeyQueue
}

// turnHeap holds the waiting queues of a tenant. It holds values, so that a waiting queue costs no allocation.
type turnHeap []turn

func (h turnHeap) before(i, j int) bool {
	return h[i].virtualTime < h[j].virtualTime || h[i].virtualTime == h[j].virtualTime && h[i].came < h[j].came
}

func (h *turnHeap) push(t turn) {
	*h = append(*h, t)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h.before(i, up) {
			return
		}
		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}

// pop takes the first. There must be one.
func (h *turnHeap) pop() turn {
	first, last := (*h)[0], len(*h)-1
	(*h)[0] = (*h)[last]
	(*h)[last] = turn{}
	*h = (*h)[:last]
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if h.before(down, least) {
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

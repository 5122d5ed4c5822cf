package schedule

import (
	"container/heap"
	"math"
)

// serviceTime is how long a call uses up the shared limit that it burdens most, in microseconds; 1 if keys share
// nothing. So a call that takes 20 tokens of a thousand a second weighs as much as two that take one permit of a
// hundred. This is the dominant share of Ghodsi and others (NSDI 2011), counted in time.
type serviceTime int64

const mostServiceTime = serviceTime(1) << 44 // half a year: sums of any number of them stay far from overflow

// turns says which queue is next at what keys share: the shared limits, and room to make jobs ready. It owns the
// tenants and the seats of queues. A queue waits in at most one line and at most once for room, and every tenant with a
// waiting queue is itself in that line.
//
// Queues wait for the shared limits in two lines with one order, by start-time fair queueing (Goyal, Vin and Cheng,
// SIGCOMM 1996), first among tenants and then among the queues of one. The tenant or queue that has taken least is
// next; one that was away gets no credit for it. Unlike a deficit round robin, it does not make a costly call wait for
// its quantum to add up. A turn costs O(log n) in the queues that wait.
type turns struct {
	tenants map[string]*tenant // those that have queues
	coming  map[*tenant]bool   // of these, those with queues that wait for their next slot
	lines   [2]tenantHeap
	clock   serviceTime // virtual time of the tenant that was granted a slot last
	came    uint64      // order of coming of the queue that came last
	room    roundRobin  // queues that wait for room to make a job ready
}

// line is one of the two lines in which queues wait for their turn at the shared limits.
type line int8

const (
	askLine     line = iota // of queues with a ready job, or a running call: they will ask
	prepareLine             // of queues without one: they will make one ready
)

// seat is a queue's place in the order of turns. The zero seat belongs to no tenant and waits for nothing.
type seat struct {
	tenant                   *tenant
	virtualTime, lastService serviceTime    // what its calls have taken, and what one took last
	lent                     [2]serviceTime // what each line has lent it for the next call
	came                     uint64         // its order of coming to wait for its next slot; 0: it does not wait
	line                     line           // the line in which it waits while it is blocked
	blocked                  bool           // it waits in a line
	queued                   bool           // it waits for room
	called                   bool           // it has the turn at the shared limits
	invited                  bool           // it has the turn to make a job ready for them
	costly                   bool           // a shared limit refused its cost: it asks last in its round
}

// isIdle reports whether the queue waits for nothing.
func (p *seat) isIdle() bool { return !p.blocked && !p.queued }

// tenant groups the keys that share a turn: all keys of an api if no tenants are named. It lasts as long as it has
// queues.
type tenant struct {
	name   string
	queues int // that belong to it

	virtualTime serviceTime // what its calls have taken: its place among the tenants
	clock       serviceTime // virtual time of its queue that was granted a slot last
	in          [2]standing // in each line
	queued      []*KeyQueue // its queues that wait for room, in order

	coming    int // its queues that wait for their next slot
	elsewhere int // its keys that wait at other processes, as the store said last
}

// counts returns how far a call advances a tenant's virtual time that takes d. The tenant's keys that wait elsewhere have
// their part of its turns there.
func (t *tenant) counts(d serviceTime) serviceTime {
	if t.elsewhere <= 0 {
		return d
	}
	here := float64(max(1, t.coming))
	return serviceTime(min(float64(d)*(here+float64(t.elsewhere))/here, float64(mostServiceTime)))
}

// standing is a tenant's place in a line.
type standing struct {
	lent    serviceTime // to its queues that have the turn and no slot yet
	came    uint64
	place   int // among the tenants that wait, counted from 1; notWaiting when it does not
	blocked turnHeap
}

// waits reports whether a queue of the tenant waits in either line.
func (t *tenant) waits() bool {
	return t.in[askLine].place != notWaiting || t.in[prepareLine].place != notWaiting
}

// reset clears all lines for new rules, since service times under new rules do not compare with earlier ones. Every
// queue must then be given to its tenant again.
func (t *turns) reset() {
	for _, of := range t.tenants { // queues not rebound yet still belong to these tenants, and may leave meanwhile
		of.in, of.queued = [2]standing{}, nil
	}
	*t = turns{tenants: map[string]*tenant{}, coming: map[*tenant]bool{}}
	t.lines[prepareLine].line = prepareLine
}

// join gives a queue to the tenant of this name.
func (t *turns) join(q *KeyQueue, name string) {
	if t.tenants[name] == nil {
		t.tenants[name] = &tenant{name: name}
	}
	q.seat.tenant = t.tenants[name]
	q.seat.tenant.queues++
}

// rejoin gives a queue to its tenant, once after each reset. The queue keeps its turns. What its calls have taken is
// forgotten.
func (t *turns) rejoin(q *KeyQueue, name string) {
	if of := q.seat.tenant; of == nil || t.tenants[of.name] != of {
		t.comes(q, 0)
		q.seat = seat{called: q.seat.called, invited: q.seat.invited}
		t.join(q, name)
	}
}

// leave takes a queue from its tenant, with all that it was lent.
func (t *turns) leave(q *KeyQueue) {
	t.lend(q, askLine, 0)
	t.lend(q, prepareLine, 0)
	t.comes(q, 0)
	of := q.seat.tenant
	if of.queues--; of.queues == 0 && t.tenants[of.name] == of {
		delete(t.tenants, of.name)
	}
	q.seat.tenant = nil
}

// asking and preparing return how many queues wait in each line, waiting in both.
func (t *turns) asking() int    { return t.lines[askLine].queues }
func (t *turns) preparing() int { return t.lines[prepareLine].queues }
func (t *turns) waiting() int   { return t.asking() + t.preparing() }

// wait makes a queue wait for its turn at the shared limits, unless it already waits: to ask, or first to make a job
// ready.
func (t *turns) wait(q *KeyQueue) {
	if q.ungranted() > 0 {
		t.push(q, askLine)
	} else {
		t.push(q, prepareLine)
	}
}

func (t *turns) push(q *KeyQueue, l line) {
	if q.seat.blocked {
		return
	}
	q.seat.blocked, q.seat.line = true, l
	of, w := q.seat.tenant, &t.lines[l]
	in := &of.in[l]
	t.catchUp(q)
	if q.seat.came == 0 {
		t.came++
		t.comes(q, t.came)
	}
	if in.place == notWaiting {
		in.came = q.seat.came
		heap.Push(w, of)
	}
	in.blocked.push(turn{q.seat.virtualTime, q.seat.came, q})
	w.queues++
}

// comes sets a queue's order of coming to wait for its next slot, 0 if it does not wait.
func (t *turns) comes(q *KeyQueue, came uint64) {
	of := q.seat.tenant
	switch {
	case q.seat.came == 0 && came != 0:
		if of.coming++; of.coming == 1 {
			t.coming[of] = true
		}
	case q.seat.came != 0 && came == 0:
		if of.coming--; of.coming == 0 {
			delete(t.coming, of)
		}
	}
	q.seat.came = came
}

// catchUp puts a queue that was away no further ahead than the queues that are being called.
func (t *turns) catchUp(q *KeyQueue) {
	of := q.seat.tenant
	q.seat.virtualTime = max(q.seat.virtualTime, of.clock)
	if !of.waits() {
		of.virtualTime = max(of.virtualTime, t.clock)
	}
}

// toAsk gives the turn at the shared limits to the queue that has waited longest, nil if none waits.
func (t *turns) toAsk() *KeyQueue {
	q := t.pop(askLine)
	if q != nil {
		q.seat.called = true
	}
	return q
}

// toPrepare gives the turn to make a job ready to the queue that will have the shared limits first, nil if none
// waits.
func (t *turns) toPrepare() *KeyQueue {
	q := t.pop(prepareLine)
	if q != nil {
		q.seat.invited = true
	}
	return q
}

// pop takes the queue from a line that has waited longest, measured in service times, nil if none waits. It lends the
// queue what the queue's last call took, so that the next turn is another tenant's.
func (t *turns) pop(l line) *KeyQueue {
	w := &t.lines[l]
	if w.Len() == 0 {
		return nil
	}
	in := &w.all[0].in[l]
	q := in.next()
	q.seat.blocked = false
	w.queues--
	if len(in.blocked) == 0 {
		heap.Pop(w)
	}
	t.lend(q, l, q.seat.tenant.counts(max(q.seat.lastService, 1)))
	return q
}

// next takes the queue that has taken least. It counts now what a queue was granted while it waited.
func (in *standing) next() *KeyQueue {
	for {
		first := in.blocked.pop()
		if q := first.queue; q.seat.virtualTime > first.virtualTime {
			in.blocked.push(turn{q.seat.virtualTime, first.came, q})
			continue
		}
		return first.queue
	}
}

// lend sets what a line has lent a queue of its tenant's turn.
func (t *turns) lend(q *KeyQueue, l line, d serviceTime) {
	of := q.seat.tenant
	of.in[l].lent += d - q.seat.lent[l]
	q.seat.lent[l] = d
	t.lines[l].reorder(of)
}

// take lends a queue what n calls take, each of the same service time, for which it is about to ask.
func (t *turns) take(q *KeyQueue, each serviceTime, n int) {
	if !q.seat.called {
		t.catchUp(q) // it asks without having waited
	}
	q.seat.called, q.seat.lastService = false, each
	t.lend(q, askLine, q.seat.tenant.counts(each*serviceTime(n)))
}

// book charges a queue for its grants, and takes back what the queue was lent. The part that was lent to make a job
// ready stays lent while that job waits for its slot.
func (t *turns) book(q *KeyQueue, grants int) {
	of, d := q.seat.tenant, q.seat.lastService*serviceTime(grants)
	if d > 0 {
		t.clock, of.clock = max(t.clock, of.virtualTime), max(of.clock, q.seat.virtualTime)
		of.virtualTime, q.seat.virtualTime = of.virtualTime+of.counts(d), q.seat.virtualTime+d
		t.comes(q, 0)
	}
	t.lend(q, askLine, 0)
	if d > 0 || q.ungranted() == 0 {
		t.lend(q, prepareLine, 0)
	} else {
		t.lines[prepareLine].reorder(of)
	}
}

// refuse notes the cost of the call that a shared limit refused a queue: a costly one asks last in its round.
func (p *seat) refuse(cost int64) { p.costly = cost > 1 }

// pass ends the turns that a queue has and cannot use now.
func (t *turns) pass(q *KeyQueue) {
	p := &q.seat
	if p.called {
		p.called = false
		t.lend(q, askLine, 0) // it had nothing to ask for
	}
	ungranted := q.ungranted()
	if p.invited = false; p.lent[prepareLine] != 0 && ungranted == 0 {
		t.lend(q, prepareLine, 0) // it had nothing to make ready, or what it had was withdrawn
	}
	if !p.blocked && ungranted == 0 {
		t.comes(q, 0)
	}
}

// takeAll takes all queues that wait to ask, in the order of their turns. The caller must put each back.
func (t *turns) takeAll() (waiting []*KeyQueue) {
	for q := t.pop(askLine); q != nil; q = t.pop(askLine) {
		waiting = append(waiting, q)
	}
	return waiting
}

// putBack lets a queue that was taken wait again.
func (t *turns) putBack(q *KeyQueue) {
	t.lend(q, askLine, 0)
	if q.ungranted() == 0 {
		t.lend(q, prepareLine, 0)
	}
	t.wait(q)
}

// forget removes the queues of a partition that this process does not own any more from both lines.
func (t *turns) forget(p *Partition) {
	for l := range t.lines {
		w := &t.lines[l]
		all := w.all
		w.all = nil
		for _, of := range all {
			in := &of.in[l]
			in.place = notWaiting
			waiting := in.blocked
			in.blocked = nil
			for _, x := range waiting {
				if x.queue.Partition == p {
					x.queue.seat.blocked = false
					t.comes(x.queue, 0)
					w.queues--
					continue
				}
				in.blocked.push(x)
			}
			if len(in.blocked) > 0 {
				heap.Push(w, of)
			}
		}
	}
}

// ahead estimates how many of a tenant's waiting queues have their turn before a queue, in the lines or for room; nil
// stands for a queue that comes now.
func (t *tenant) ahead(q *KeyQueue) int {
	own := turn{virtualTime: t.clock, came: math.MaxUint64, queue: q}
	if q != nil {
		own.virtualTime = max(own.virtualTime, q.seat.virtualTime)
	}
	return t.in[askLine].ahead(own) + t.in[prepareLine].ahead(own) + len(t.queued)
}

// mostSampled bounds the queues of a line that a forecast looks at.
const mostSampled = 64

// ahead estimates how many of the queues in a line have their turn before own.
func (in *standing) ahead(own turn) int {
	waiting := in.blocked
	step, seen, sooner := max(1, len(waiting)/mostSampled), 0, 0
	for i := 0; i < len(waiting); i += step {
		if waiting[i].queue == own.queue {
			own.came = waiting[i].came
		}
	}
	for i := 0; i < len(waiting); i += step {
		seen++
		if waiting[i].before(own) {
			sooner++
		}
	}
	return sooner * len(waiting) / max(1, seen)
}

// notWaiting is the place of a tenant without waiting queues.
const notWaiting = 0

// tenantHeap is a line: the tenants with queues that wait in it, ordered by what they have taken and are lent, then by
// when they came.
type tenantHeap struct {
	line   line
	queues int // that wait
	all    []*tenant
}

func (h *tenantHeap) reorder(t *tenant) {
	if place := t.in[h.line].place; place != notWaiting {
		heap.Fix(h, place-1)
	}
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

// turn is a waiting queue with the virtual time that it had when it came. Of equal virtual times, the queue that came
// first is first.
type turn struct {
	virtualTime serviceTime
	came        uint64
	queue       *KeyQueue
}

func (t turn) before(other turn) bool {
	return t.virtualTime < other.virtualTime || t.virtualTime == other.virtualTime && t.came < other.came
}

// turnHeap holds the waiting queues of a tenant. It holds values, so that a waiting queue costs no allocation.
type turnHeap []turn

func (h *turnHeap) push(t turn) {
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

// pop takes the first. There must be one.
func (h *turnHeap) pop() turn {
	first, last := (*h)[0], len(*h)-1
	(*h)[0] = (*h)[last]
	(*h)[last] = turn{}
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

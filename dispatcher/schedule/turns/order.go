package turns

import (
	"container/heap"
	"math"

	"weir/bucket"
)

// order is the order of turns among the queues with jobs of one priority. It owns the tenants of these queues, and the
// seats that the queues have for this priority. A queue waits in at most one of the order's lines, and at most once for
// room. Every tenant with a waiting queue is itself in the queue's line.
//
// Queues wait for the shared limits in two lines with one order. The order is that of start-time fair queueing (Goyal,
// Vin and Cheng, SIGCOMM 1996), first among tenants and then among the queues of a tenant. The tenant or queue that has
// taken least is next. One that was away gets no credit for that. Unlike in a deficit round robin, a costly call need
// not wait until its quantum has added up. A turn costs O(log n) in the number of queues that wait.
type order[Q Queue[Q]] struct {
	tenants map[string]*tenant[Q] // the tenants that have queues
	coming  map[*tenant[Q]]bool   // the tenants with queues that wait for their next slot
	lines   [2]tenantHeap[Q]
	clock   ServiceTime   // virtual time of the tenant that was last granted a slot
	came    uint64        // numbers the queues in the order in which they came
	room    roundRobin[Q] // queues that wait for room to make a job ready

	shares *shares // how the orders of all priorities share the turns
	merit  merit   // the order's standing among them
}

func newOrder[Q Queue[Q]](p bucket.Priority, all *shares) order[Q] {
	o := order[Q]{merit: merit{priority: p}, shares: all, tenants: map[string]*tenant[Q]{}, coming: map[*tenant[Q]]bool{}}
	o.lines[prepareLine].line = prepareLine
	return o
}

// seat is a queue's place in the order of turns. The zero seat belongs to no tenant and waits for nothing.
type seat[Q any] struct {
	tenant                   *tenant[Q]
	virtualTime, lastService ServiceTime    // what its calls have taken together, and what its last call took
	lent                     [2]ServiceTime // what each line has lent it for the next call
	came                     uint64         // its number in the order of coming to wait for a slot; 0: it does not wait
	asks                     int16          // calls for which it asks, or has the turn to ask
	State
}

// State says how a queue stands among the turns of a priority.
type State struct {
	Blocked   bool // it waits in a line
	Preparing bool // it waits in the line of queues that make a job ready
	Queued    bool // it waits for room
	HasTurn   bool // it has the turn at the shared limits
	Invited   bool // it has the turn to make a job ready for the shared limits
	Costly    bool // a shared limit refused its cost: it asks last in its round
}

// isIdle reports whether the queue waits for nothing.
func (s *State) isIdle() bool { return !s.Blocked && !s.Queued }

// tenant groups the keys that share a turn. If no tenants are named, all keys of an api are one tenant. A tenant exists
// as long as it has queues.
type tenant[Q any] struct {
	name   string
	queues int // that belong to it

	virtualTime ServiceTime    // what its calls have taken: its place among the tenants
	clock       ServiceTime    // virtual time of its queue that was last granted a slot
	in          [2]standing[Q] // in each line
	queued      []Q            // its queues that wait for room, in order

	coming    int // its queues that wait for their next slot
	elsewhere int // its keys that wait at other processes, as the store last said
}

// counts returns how far a call that takes d advances the tenant's virtual time. The more of the tenant's keys wait at
// other processes, the further it advances: those keys get their part of the tenant's turns there.
func (t *tenant[Q]) counts(d ServiceTime) ServiceTime {
	if t.elsewhere <= 0 {
		return d
	}
	here := float64(max(1, t.coming))
	return ServiceTime(min(float64(d)*(here+float64(t.elsewhere))/here, float64(MostServiceTime)))
}

// standing is a tenant's place in a line.
type standing[Q any] struct {
	lent    ServiceTime // lent to its queues that have the turn and no slot yet
	came    uint64
	place   int // among the waiting tenants, counted from 1; notWaiting if the tenant does not wait
	blocked turnHeap[Q]
}

// waits reports whether a queue of the tenant waits in either line.
func (t *tenant[Q]) waits() bool {
	return t.in[askLine].place != notWaiting || t.in[prepareLine].place != notWaiting
}

// reset clears both lines for new rules, because service times under new rules cannot be compared with earlier ones.
// Afterwards every queue must be given to its tenant again.
func (o *order[Q]) reset() {
	for _, of := range o.tenants { // queues that are not rebound yet belong to these tenants, and may leave meanwhile
		of.in, of.queued = [2]standing[Q]{}, nil
	}
	*o = newOrder[Q](o.merit.priority, o.shares)
}

// seat returns a queue's place in the order.
func (o *order[Q]) seat(q Q) *seat[Q] { return q.Seats().of(o.merit.priority) }

// ungranted returns the number of a queue's jobs of this order that are on their way to a slot and have none yet.
func (o *order[Q]) ungranted(q Q) int { return q.Ungranted(o.merit.priority) }

// join gives a queue to the tenant of this name.
func (o *order[Q]) join(q Q, name string) {
	if o.tenants[name] == nil {
		o.tenants[name] = &tenant[Q]{name: name}
	}
	of := o.tenants[name]
	o.seat(q).tenant = of
	of.queues++
}

// rejoin gives a queue to its tenant again after a reset. The queue keeps its turns, but what its calls have taken is
// forgotten. Further calls until the next reset change nothing.
func (o *order[Q]) rejoin(q Q, name string) {
	own := o.seat(q)
	if of := own.tenant; of == nil || o.tenants[of.name] != of {
		o.comes(q, 0)
		*own = seat[Q]{State: State{HasTurn: own.HasTurn, Invited: own.Invited}}
		o.join(q, name)
	}
}

// leave takes a queue from its tenant, and takes back all that the queue was lent.
func (o *order[Q]) leave(q Q) {
	o.lend(q, askLine, 0)
	o.lend(q, prepareLine, 0)
	o.comes(q, 0)
	own := o.seat(q)
	of := own.tenant
	if of.queues--; of.queues == 0 && o.tenants[of.name] == of {
		delete(o.tenants, of.name)
	}
	own.tenant = nil
}

// asking and preparing return how many queues wait in each line; waiting returns how many wait in both together.
func (o *order[Q]) asking() int    { return o.lines[askLine].queues }
func (o *order[Q]) preparing() int { return o.lines[prepareLine].queues }
func (o *order[Q]) waiting() int   { return o.asking() + o.preparing() }

// wait makes a queue wait for its turn at the shared limits, unless it already waits. A queue with a job on its way to
// a slot waits to ask. Any other queue first waits to make a job ready.
func (o *order[Q]) wait(q Q) {
	if o.ungranted(q) > 0 {
		o.push(q, askLine)
	} else {
		o.push(q, prepareLine)
	}
}

func (o *order[Q]) push(q Q, l line) {
	own := o.seat(q)
	if own.Blocked {
		return
	}
	own.Blocked, own.Preparing = true, l == prepareLine
	of, w := own.tenant, &o.lines[l]
	in := &of.in[l]
	o.catchUp(q)
	if own.came == 0 {
		o.came++
		o.comes(q, o.came)
	}
	if in.place == notWaiting {
		in.came = own.came
		heap.Push(w, of)
	}
	in.blocked.push(turn[Q]{own.virtualTime, own.came, q})
	w.queues++
}

// comes sets the number that a queue gets when it comes to wait for its next slot, 0 if it does not wait.
func (o *order[Q]) comes(q Q, came uint64) {
	own := o.seat(q)
	of := own.tenant
	switch {
	case own.came == 0 && came != 0:
		if of.coming++; of.coming == 1 {
			o.coming[of] = true
		}
		o.twice(q, 1)
	case own.came != 0 && came == 0:
		if of.coming--; of.coming == 0 {
			delete(o.coming, of)
		}
		o.twice(q, -1)
	}
	own.came = came
}

// twice adds n to shares.twice if the queue waits for its next slot in another order, too.
func (o *order[Q]) twice(q Q, n int) {
	if q.Seats().others == nil {
		return
	}
	if of := o.seat(q).tenant; o.tenants[of.name] != of {
		return // the tenant belongs to former rules
	}
	for _, p := range bucket.Priorities {
		if own := q.Seats().of(p); p != o.merit.priority && own.came != 0 && own.tenant != nil {
			o.shares.twice += n
			return
		}
	}
}

// catchUp raises the virtual time of a queue that was away to that of the tenant's queue that was last granted a slot.
// It does the same for a tenant that was away. So being away gives no credit.
func (o *order[Q]) catchUp(q Q) {
	own := o.seat(q)
	of := own.tenant
	own.virtualTime = max(own.virtualTime, of.clock)
	if !of.waits() {
		of.virtualTime = max(of.virtualTime, o.clock)
	}
}

// toAsk gives the turn at the shared limits to the queue that is next; ok is false if none waits.
func (o *order[Q]) toAsk() (q Q, ok bool) {
	q, ok = o.pop(askLine)
	if ok {
		o.seat(q).HasTurn = true
	}
	return q, ok
}

// toPrepare returns the queue that will be first at the shared limits; ok is false if none waits. It gives that queue
// the turn to make a job ready.
func (o *order[Q]) toPrepare() (q Q, ok bool) {
	q, ok = o.pop(prepareLine)
	if ok {
		o.seat(q).Invited = true
	}
	return q, ok
}

// pop takes the queue that is next in a line; ok is false if none waits. It lends the queue as much as the queue's last
// call took, so that the next turn is another tenant's.
func (o *order[Q]) pop(l line) (q Q, ok bool) {
	w := &o.lines[l]
	if w.Len() == 0 {
		return q, false
	}
	in := &w.all[0].in[l]
	q = next(in, o.merit.priority)
	own := o.seat(q)
	own.Blocked = false
	w.queues--
	if len(in.blocked) == 0 {
		heap.Pop(w)
	}
	o.lend(q, l, 1)
	return q, true
}

// next takes the queue that has taken least. If the first queue was granted slots while it waited, next first puts it
// back behind the queues that have taken less.
func next[Q Queue[Q]](in *standing[Q], p bucket.Priority) Q {
	for {
		first := in.blocked.pop()
		if own := first.queue.Seats().of(p); own.virtualTime > first.virtualTime {
			in.blocked.push(turn[Q]{own.virtualTime, first.came, first.queue})
			continue
		}
		return first.queue
	}
}

// lend sets for how many calls a line has lent a queue its tenant's turn. Each such call counts as much as the queue's
// last call took.
func (o *order[Q]) lend(q Q, l line, calls int) {
	own := o.seat(q)
	of, d := own.tenant, ServiceTime(0)
	if calls > 0 {
		d = of.counts(max(own.lastService, 1) * ServiceTime(calls))
	}
	if l == askLine && o.tenants[of.name] == of { // otherwise the tenant belongs to former rules
		o.merit.asked += calls - int(own.asks)
		own.asks = int16(calls) //nolint:gosec // at most MostInRow
	}
	of.in[l].lent += d - own.lent[l]
	own.lent[l] = d
	o.lines[l].reorder(of)
}

// take ends a queue's turn to ask, and lends the queue its tenant's turn for the n calls for which it is about to ask.
// each is the service time that one of them takes.
func (o *order[Q]) take(q Q, each ServiceTime, n int) {
	own := o.seat(q)
	if !own.HasTurn {
		o.catchUp(q) // it asks without having waited
	}
	own.HasTurn, own.lastService = false, each
	o.lend(q, askLine, n)
}

// book charges a queue for its grants, and takes back what the queue was lent. What it was lent to make a job ready
// stays lent while that job waits for its slot.
func (o *order[Q]) book(q Q, grants int) {
	own := o.seat(q)
	of, d := own.tenant, own.lastService*ServiceTime(grants)
	if d > 0 {
		o.clock, of.clock = max(o.clock, of.virtualTime), max(of.clock, own.virtualTime)
		of.virtualTime, own.virtualTime = of.virtualTime+of.counts(d), own.virtualTime+d
		o.shares.charge(&o.merit, d, own.lastService)
		o.comes(q, 0)
	}
	o.lend(q, askLine, 0)
	if d > 0 || o.ungranted(q) == 0 {
		o.lend(q, prepareLine, 0)
	} else {
		o.lines[prepareLine].reorder(of)
	}
}

// refuse notes that a shared limit refused a call of this cost; cost is 0 if none did. A queue with a costly call asks
// last in its round.
func (s *State) refuse(cost int64) { s.Costly = cost > 1 }

// pass ends the turns that a queue has and cannot use now.
func (o *order[Q]) pass(q Q) {
	p := o.seat(q)
	if p.HasTurn {
		p.HasTurn = false
		o.lend(q, askLine, 0) // the queue had nothing to ask for
	}
	ungranted := o.ungranted(q)
	if p.Invited = false; p.lent[prepareLine] != 0 && ungranted == 0 {
		o.lend(q, prepareLine, 0) // the queue had nothing to make ready, or its ready job was withdrawn
	}
	if !p.Blocked && ungranted == 0 {
		o.comes(q, 0)
	}
}

// putBack makes a queue wait again that was taken from a line.
func (o *order[Q]) putBack(q Q) {
	o.lend(q, askLine, 0)
	if o.ungranted(q) == 0 {
		o.lend(q, prepareLine, 0)
	}
	o.wait(q)
}

// forget removes lost queues from both lines.
func (o *order[Q]) forget(lost func(Q) bool) {
	for l := range o.lines {
		w := &o.lines[l]
		all := w.all
		w.all = nil
		for _, of := range all {
			in := &of.in[l]
			in.place = notWaiting
			waiting := in.blocked
			in.blocked = nil
			for _, x := range waiting {
				if lost(x.queue) {
					o.seat(x.queue).Blocked = false
					o.comes(x.queue, 0)
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

// ahead estimates how many of the tenant's waiting queues have their turn before q. It counts those in the lines and
// those that wait for room. s is q's seat. Both are nil for a queue that comes now.
func ahead[Q comparable](t *tenant[Q], q Q, s *seat[Q]) int {
	own := turn[Q]{virtualTime: t.clock, came: math.MaxUint64, queue: q}
	if s != nil {
		own.virtualTime = max(own.virtualTime, s.virtualTime)
	}
	return aheadIn(&t.in[askLine], own) + aheadIn(&t.in[prepareLine], own) + len(t.queued)
}

// mostSampled bounds the queues of a line that a forecast looks at.
const mostSampled = 64

// aheadIn estimates how many of the queues in a line have their turn before own.
func aheadIn[Q comparable](in *standing[Q], own turn[Q]) int {
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

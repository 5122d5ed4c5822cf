package schedule

import "weir/bucket"

// serviceTime is how long a call uses up the shared limit of which it takes the largest part, in microseconds; 1 if
// keys share nothing. So a call that takes 20 of a thousand tokens a second weighs as much as two calls that each take
// one of a hundred units a second. This is the dominant share of Ghodsi and others (NSDI 2011), counted in time.
type serviceTime int64

const mostServiceTime = serviceTime(1) << 44 // half a year: sums of any number of them stay far from overflow

// seats holds a queue's seats, one for each priority of which the queue may have jobs.
type seats struct {
	normal seat
	others *[len(bucket.Priorities)]seat // nil if the queue has only normal jobs
}

// turns says which queue is next at what keys share: the shared limits, and room to make jobs ready. First the
// priorities take turns by their weights, then the tenants of a priority, then the queues of a tenant (order.go). A
// queue that has jobs of several priorities waits for a turn of each, so that no job waits for the turn of a less
// urgent job of its own key.
type turns struct {
	all    [len(bucket.Priorities)]*order // of each priority; nil for high and low until such a job comes
	shares shares
}

// shares says how the priorities take turns: by start-time fair queueing, as tenants and queues do. A priority's
// virtual time is what its calls have taken, divided by its weight. The next call is one of the priority with the least
// virtual time, and the clock is set to the virtual time at which that call begins. While there is only one order,
// nothing is counted.
//
// Let a call advance its priority's virtual time v by c. While a priority waits and has a job ready whenever its turn
// comes,
//
//	clock ≤ v ≤ clock + c
//
// The first inequality holds because the least v becomes the clock. The second holds after the priority's own call,
// which began at the clock. It goes on holding until the priority's next call, because v stays and the clock never goes
// back. So in any span in which two priorities wait, what they take, divided by their weights, differs by at most one
// call of each. A job with n jobs of its priority before it waits for at most n+1 turns of that priority. Between two
// such turns every other priority has at most its part of the calls, and one more call.
//
// A priority that waits can miss its turn, because all of its jobs are still being made ready, or their keys wait for
// their own rates. It keeps its virtual time, and makes up for the missed turns as soon as it has jobs ready. This
// credit is at most what one call would add to the virtual time of a priority with the least weight, so that a priority
// cannot save up turns while its keys wait for their own rates. The credit ends when another priority gets its first
// waiting job. That priority begins without credit.
type shares struct {
	weights bucket.Weights
	clock   serviceTime                  // the virtual time at which the call that was last granted a slot began
	several bool                         // there are several orders
	onWay   *[len(bucket.Priorities)]int // Pipeline.onWay; nil: none
	twice   int                          // in how many orders each queue waits for its next slot, less one; the sum over all queues
}

// merit is the standing of a priority's order among the orders.
type merit struct {
	virtualTime serviceTime // what its calls have taken, divided by its weight
	lastService serviceTime // what its last call took
	asked       int         // its calls that have the turn and no slot yet
	whole       int         // all processes' part of it, in thousandths of this one's, as the store last said
}

// counts returns how far a call advances a priority's virtual time. d is how far it would advance it if no other
// processes had a part of the priority's turns.
func (m *merit) counts(d serviceTime) serviceTime {
	if m.whole <= 1000 {
		return d
	}
	return serviceTime(min(float64(d)*float64(m.whole)/1000, float64(mostMerit*meritUnit)))
}

// Service times are multiplied by meritUnit before they are divided by a weight. A priority's virtual time then does
// not overflow within 17 years, because calls cannot use up a limit faster than time passes. A call that takes longer
// than mostMerit, which is 12 days, counts as mostMerit.
const (
	meritUnit = 1 << 14
	mostMerit = serviceTime(1) << 40
)

// cost returns how far calls that together take d advance the virtual time of their order, whose weight is w.
func (o *order) cost(d serviceTime, w int64) serviceTime {
	return o.merit.counts((min(d, mostMerit)*meritUnit + serviceTime(w)/2) / serviceTime(w))
}

// each returns how far an order's next call advances its virtual time.
func (s *shares) each(o *order) serviceTime {
	return o.cost(max(o.merit.lastService, 1), s.weights.Of(o.priority))
}

// begins returns the virtual time at which an order's next call begins.
func (s *shares) begins(o *order) serviceTime {
	least := s.weights.Of(bucket.Priorities[0])
	for _, p := range bucket.Priorities {
		least = min(least, s.weights.Of(p))
	}
	return max(o.merit.virtualTime, s.clock-o.cost(max(o.merit.lastService, 1), least))
}

// charge counts calls of an order. Together they took d, and each of them took each.
func (s *shares) charge(o *order, d, each serviceTime) {
	if s.several {
		o.merit.lastService = each
		o.merit.virtualTime = s.begins(o) + o.cost(d, s.weights.Of(o.priority))
		s.clock = max(s.clock, o.merit.virtualTime-s.each(o))
	}
}

// due returns the virtual time of an order's next turn in a line. It includes the calls for which the order had turns
// in that line and which have no slot yet. In the line that makes jobs ready, these are the jobs on their way to a
// slot.
func (s *shares) due(o *order, l line) serviceTime {
	n := o.merit.asked
	if l == prepareLine && s.onWay != nil {
		n = s.onWay[o.priority-bucket.High]
	}
	return s.begins(o) + serviceTime(n)*s.each(o)
}

// orders yields the orders that exist, the most urgent first.
func (t *turns) orders(yield func(*order) bool) {
	for _, o := range t.all {
		if o != nil && !yield(o) {
			return
		}
	}
}

// of returns the order of a priority.
func (t *turns) of(p bucket.Priority) *order {
	o := t.all[p-bucket.High]
	if o == nil {
		o = &order{}
		*o = newOrder(p, &t.shares)
		o.merit.virtualTime = t.shares.clock
		t.all[p-bucket.High], t.shares.several = o, t.shares.several || p != bucket.Normal
	}
	return o
}

// normal returns the order of normal jobs, which always exists.
func (t *turns) normal() *order { return t.all[bucket.Normal-bucket.High] }

// wake lets a priority that had no waiting job begin without credit. It also ends the credit of the other priorities:
// they missed their turns before this priority came, and it must not pay for that.
func (t *turns) wake(p bucket.Priority) {
	if t.all[p-bucket.High] == nil {
		return
	}
	for o := range t.orders {
		o.merit.virtualTime = max(o.merit.virtualTime, t.shares.clock)
	}
}

// reset clears all lines for new rules. Afterwards every queue must be given to its tenants again.
func (t *turns) reset(w bucket.Weights) {
	t.shares = shares{weights: w, several: t.shares.several, onWay: t.shares.onWay}
	t.of(bucket.Normal)
	for o := range t.orders {
		o.reset()
	}
}

// join gives a queue to the tenant with this name, in the order of a priority.
func (t *turns) join(q *KeyQueue, p bucket.Priority, name string) { t.of(p).join(q, name) }

// rejoin gives a queue to its tenants again after a reset. The queue keeps its turns, but what its calls have taken is
// forgotten. Further calls until the next reset change nothing.
func (t *turns) rejoin(q *KeyQueue, name string) {
	for _, p := range q.seated() {
		t.of(p).rejoin(q, name)
	}
}

// leave takes a queue from its tenants, and takes back all that the queue was lent.
func (t *turns) leave(q *KeyQueue) {
	t.leaveClasses(q)
	t.normal().leave(q)
}

// leaveClasses takes a queue from its tenants in all orders but the one of normal jobs.
func (t *turns) leaveClasses(q *KeyQueue) {
	for _, p := range q.seated() {
		if p != bucket.Normal {
			t.of(p).leave(q)
		}
	}
}

// asking and preparing return how many queues wait in each line; waiting returns how many wait in both together. A
// queue counts once for each priority.
func (t *turns) asking() int    { return t.queues(askLine) }
func (t *turns) preparing() int { return t.queues(prepareLine) }
func (t *turns) waiting() int   { return t.asking() + t.preparing() }

func (t *turns) queues(l line) (n int) {
	for o := range t.orders {
		n += o.lines[l].queues
	}
	return n
}

// first returns the order with waiting queues that has the next turn in a line; nil if there is none. If two orders are
// equal, it returns the more urgent one.
func (t *turns) first(l line, waits func(*order) bool) (first *order) {
	if !t.shares.several {
		return t.normal()
	}
	for o := range t.orders {
		if waits(o) && (first == nil || t.shares.due(o, l) < t.shares.due(first, l)) {
			first = o
		}
	}
	return first
}

func (o *order) asks() bool         { return o.lines[askLine].queues > 0 }
func (o *order) prepares() bool     { return o.lines[prepareLine].queues > 0 }
func (o *order) waitsForRoom() bool { return o.room.size > 0 }

// isFirstOnWay reports whether the next turn to make a job ready belongs to a priority that has no job on its way to a
// slot. Such a job may be made ready even if there is no room for it. Otherwise a less urgent job could have been made
// ready while the keys of a more urgent priority could not be called. It would then get the next slot, and its priority
// would get half of all calls.
func (t *turns) isFirstOnWay() bool {
	if !t.shares.several {
		return false
	}
	o := t.first(prepareLine, (*order).prepares)
	return o != nil && t.shares.onWay[o.priority-bucket.High] == 0
}

// inRow returns for how many calls in a row a queue may ask in the turn of priority p. The calls that p may make before
// the turn of another priority are divided evenly among the queues that ask in the turn of p. inRow returns 0 if no
// other priority waits, otherwise at least 1.
func (t *turns) inRow(q *KeyQueue, p bucket.Priority) int {
	if !t.shares.several {
		return 0
	}
	o, n := t.of(p), serviceTime(0)
	each := t.shares.each(o)
	from := t.shares.due(o, askLine) - serviceTime(o.seat(q).asks)*each
	for other := range t.orders {
		if other == o || !other.asks() && other.merit.asked == 0 {
			continue
		}
		until := t.shares.due(other, askLine)
		if o.priority < other.priority {
			until++ // a more urgent priority comes first among equals
		}
		if row := max(1, (until-from+each-1)/each); n == 0 || row < n {
			n = row
		}
	}
	if n == 0 {
		return 0
	}
	return max(1, int(min(n, maxAsks))/(1+o.lines[askLine].queues))
}

// toAsk gives the turn at the shared limits to the queue that is next, and returns it with its seat; nil if none waits.
func (t *turns) toAsk() (*KeyQueue, *seat) {
	o := t.first(askLine, (*order).asks)
	if o == nil {
		return nil, nil
	}
	q := o.toAsk()
	if q == nil {
		return nil, nil
	}
	return q, o.seat(q)
}

// toPrepare returns the queue that will be first at the shared limits, nil if none waits. It gives that queue the turn
// to make a job ready.
func (t *turns) toPrepare() *KeyQueue {
	if o := t.first(prepareLine, (*order).prepares); o != nil {
		return o.toPrepare()
	}
	return nil
}

// pass ends the turns that a queue has and cannot use now.
func (t *turns) pass(q *KeyQueue) {
	for _, p := range q.seated() {
		t.of(p).pass(q)
	}
}

// taking is a queue that was taken from a line, with the order to which the line belongs.
type taking struct {
	queue *KeyQueue
	order *order
}

// ready returns how many of the jobs for which the queue waited in the line are ready.
func (t taking) ready() int {
	return t.queue.countOf(classSet(0).with(t.order.priority), ready)
}

// takeAll takes all queues that wait to ask, in the order of their turns. The caller must put each of them back.
func (t *turns) takeAll() (waiting []taking) {
	for o := t.first(askLine, (*order).asks); o != nil; o = t.first(askLine, (*order).asks) {
		q := o.pop(askLine)
		if q == nil {
			break
		}
		waiting = append(waiting, taking{q, o})
	}
	return waiting
}

// forget removes from all lines the queues of a partition that this process does not own any more.
func (t *turns) forget(p *Partition) {
	for o := range t.orders {
		o.forget(p)
	}
}

// roomWaiting returns how many queues wait for room to make a job ready.
func (t *turns) roomWaiting() (n int) {
	for o := range t.orders {
		n += o.room.size
	}
	return n
}

// toRoom takes the queue whose turn it is to make a job ready, now that there is room. At least one queue must be
// waiting.
func (t *turns) toRoom() *KeyQueue {
	o := t.first(prepareLine, (*order).waitsForRoom)
	return o.room.pop(o.priority)
}

// awaitRoom makes a queue wait for room for a job of a priority, unless it already waits.
func (t *turns) awaitRoom(q *KeyQueue, p bucket.Priority) { t.of(p).room.push(q, p) }

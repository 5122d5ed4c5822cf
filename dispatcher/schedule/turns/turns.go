package turns

import "weir/bucket"

// ServiceTime is how long a call uses up the shared limit of which it takes the largest part, in microseconds; 1 if
// keys share nothing. So a call that takes 20 of a thousand tokens a second weighs as much as two calls that each take
// one of a hundred units a second. This is the dominant share of Ghodsi and others (NSDI 2011), counted in time.
type ServiceTime int64

// MostServiceTime bounds a service time: half a year. Sums of any number of them stay far from overflow.
const MostServiceTime = ServiceTime(1) << 44

// Turns says which queue is next at what keys share: the shared limits, and room to make jobs ready. First the
// priorities take turns by their weights, then the tenants of a priority, then the queues of a tenant (order.go). A
// queue that has jobs of several priorities waits for a turn of each, so that no job waits for the turn of a less
// urgent job of its own key.
type Turns[Q Queue[Q]] struct {
	all      [len(bucket.Priorities)]*order[Q] // of each priority; nil for high and low until such a job comes
	callable [len(bucket.Priorities)]int       // waiting jobs of each priority that may be called
	shares   shares
}

// New returns turns without queues. onWay counts the jobs on their way to a slot, by the priority of their turn.
func New[Q Queue[Q]](w bucket.Weights, onWay *[len(bucket.Priorities)]int) *Turns[Q] {
	t := &Turns[Q]{shares: shares{onWay: onWay}}
	t.Reset(w)
	return t
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
	clock   ServiceTime                  // the virtual time at which the call that was last granted a slot began
	several bool                         // there are several orders
	onWay   *[len(bucket.Priorities)]int // jobs on their way to a slot, by the priority of their turn; nil: none
	twice   int                          // in how many orders each queue waits for its next slot, less one; the sum over all queues
}

// merit is the standing of a priority's order among the orders.
type merit struct {
	priority    bucket.Priority
	virtualTime ServiceTime // what its calls have taken, divided by its weight
	lastService ServiceTime // what its last call took
	asked       int         // its calls that have the turn and no slot yet
	whole       int         // all processes' part of it, in thousandths of this one's, as the store last said
}

// counts returns how far a call advances a priority's virtual time. d is how far it would advance it if no other
// processes had a part of the priority's turns.
func (m *merit) counts(d ServiceTime) ServiceTime {
	if m.whole <= 1000 {
		return d
	}
	return ServiceTime(min(float64(d)*float64(m.whole)/1000, float64(mostMerit*meritUnit)))
}

// Service times are multiplied by meritUnit before they are divided by a weight. A priority's virtual time then does
// not overflow within 17 years, because calls cannot use up a limit faster than time passes. A call that takes longer
// than mostMerit, which is 12 days, counts as mostMerit.
const (
	meritUnit = 1 << 14
	mostMerit = ServiceTime(1) << 40
)

// cost returns how far calls that together take d advance the virtual time of their order, whose weight is w.
func (m *merit) cost(d ServiceTime, w int64) ServiceTime {
	return m.counts((min(d, mostMerit)*meritUnit + ServiceTime(w)/2) / ServiceTime(w))
}

// each returns how far an order's next call advances its virtual time.
func (s *shares) each(o *merit) ServiceTime {
	return o.cost(max(o.lastService, 1), s.weights.Of(o.priority))
}

// begins returns the virtual time at which an order's next call begins.
func (s *shares) begins(o *merit) ServiceTime {
	least := s.weights.Of(bucket.Priorities[0])
	for _, p := range bucket.Priorities {
		least = min(least, s.weights.Of(p))
	}
	return max(o.virtualTime, s.clock-o.cost(max(o.lastService, 1), least))
}

// charge counts calls of an order. Together they took d, and each of them took each.
func (s *shares) charge(o *merit, d, each ServiceTime) {
	if s.several {
		o.lastService = each
		o.virtualTime = s.begins(o) + o.cost(d, s.weights.Of(o.priority))
		s.clock = max(s.clock, o.virtualTime-s.each(o))
	}
}

// due returns the virtual time of an order's next turn in a line. It includes the calls for which the order had turns
// in that line and which have no slot yet. In the line that makes jobs ready, these are the jobs on their way to a
// slot.
func (s *shares) due(o *merit, l line) ServiceTime {
	n := o.asked
	if l == prepareLine && s.onWay != nil {
		n = s.onWay[o.priority-bucket.High]
	}
	return s.begins(o) + ServiceTime(n)*s.each(o)
}

// orders yields the orders that exist, the most urgent first.
func (t *Turns[Q]) orders(yield func(*order[Q]) bool) {
	for _, o := range t.all {
		if o != nil && !yield(o) {
			return
		}
	}
}

// of returns the order of a priority.
func (t *Turns[Q]) of(p bucket.Priority) *order[Q] {
	o := t.all[p-bucket.High]
	if o == nil {
		o = &order[Q]{}
		*o = newOrder[Q](p, &t.shares)
		o.merit.virtualTime = t.shares.clock
		t.all[p-bucket.High], t.shares.several = o, t.shares.several || p != bucket.Normal
	}
	return o
}

// normal returns the order of normal jobs, which always exists.
func (t *Turns[Q]) normal() *order[Q] { return t.all[bucket.Normal-bucket.High] }

// Comes counts n more waiting jobs of a priority that may be called. If the priority had none, and none on their way to
// a slot, it begins without credit.
func (t *Turns[Q]) Comes(p bucket.Priority, n int) {
	t.Wake(p)
	t.callable[p-bucket.High] += n
}

// Goes stops counting n waiting jobs of a priority.
func (t *Turns[Q]) Goes(p bucket.Priority, n int) { t.callable[p-bucket.High] -= n }

// Callable returns how many waiting jobs of a priority may be called, and how many of its jobs are on their way to a
// slot.
func (t *Turns[Q]) Callable(p bucket.Priority) (waiting, onWay int) {
	if t.shares.onWay != nil {
		onWay = t.shares.onWay[p-bucket.High]
	}
	return t.callable[p-bucket.High], onWay
}

// Wake lets a priority begin without credit that has no waiting job, and is about to get one. It also ends the credit
// of the other priorities: they missed their turns before this priority came, and it must not pay for that. The caller
// calls Wake before the job is on its way.
func (t *Turns[Q]) Wake(p bucket.Priority) {
	if waiting, onWay := t.Callable(p); waiting+onWay > 0 || t.all[p-bucket.High] == nil {
		return
	}
	for o := range t.orders {
		o.merit.virtualTime = max(o.merit.virtualTime, t.shares.clock)
	}
}

// Reset clears all lines for new rules. Afterwards every queue must be given to its tenants again, by Rejoin.
func (t *Turns[Q]) Reset(w bucket.Weights) {
	t.shares = shares{weights: w, several: t.shares.several, onWay: t.shares.onWay}
	t.of(bucket.Normal)
	for o := range t.orders {
		o.reset()
	}
}

// Rejoin gives a queue to its tenants again after a reset. The queue keeps its turns, but what its calls have taken is
// forgotten. Further calls until the next reset change nothing.
func (t *Turns[Q]) Rejoin(q Q, tenant string) {
	for _, p := range q.Seats().priorities() {
		t.of(p).rejoin(q, tenant)
	}
}

// Join gives a queue to a tenant, in the order of a priority. The queue must not belong to one: see IsJoined.
func (t *Turns[Q]) Join(q Q, p bucket.Priority, tenant string) {
	q.Seats().make(p)
	t.of(p).join(q, tenant)
}

// Leave takes a queue from its tenants, and takes back all that the queue was lent.
func (t *Turns[Q]) Leave(q Q) {
	t.leaveClasses(q)
	t.normal().leave(q)
}

// LeaveClasses takes a queue from its tenants in all orders but the one of normal jobs, and frees the queue's seats
// there.
func (t *Turns[Q]) LeaveClasses(q Q) {
	t.leaveClasses(q)
	q.Seats().others = nil
}

func (t *Turns[Q]) leaveClasses(q Q) {
	for _, p := range q.Seats().priorities() {
		if p != bucket.Normal {
			t.of(p).leave(q)
		}
	}
}

// Asking returns how many queues wait to ask. A queue counts once for each priority.
func (t *Turns[Q]) Asking() int { return t.queues(askLine) }

// Preparing returns how many queues wait to make a job ready. A queue counts once for each priority.
func (t *Turns[Q]) Preparing() int { return t.queues(prepareLine) }

// Waiting returns how many queues wait in both lines together.
func (t *Turns[Q]) Waiting() int { return t.Asking() + t.Preparing() }

func (t *Turns[Q]) queues(l line) (n int) {
	for o := range t.orders {
		n += o.lines[l].queues
	}
	return n
}

// AreShared reports whether there are, or were, jobs of several priorities.
func (t *Turns[Q]) AreShared() bool { return t.shares.several }

// Coming returns how many queues wait for their next slot, for each tenant and priority. all counts each queue once.
func (t *Turns[Q]) Coming() (keys map[bucket.Waiting]int, all int) {
	keys, all = map[bucket.Waiting]int{}, -t.shares.twice
	for o := range t.orders {
		for of := range o.coming {
			keys[bucket.Waiting{Tenant: of.name, Priority: o.merit.priority}] = of.coming
			all += of.coming
		}
	}
	return keys, all
}

// first returns the order with waiting queues that has the next turn in a line; nil if there is none. If two orders are
// equal, it returns the more urgent one.
func (t *Turns[Q]) first(l line, waits func(*order[Q]) bool) (first *order[Q]) {
	if !t.shares.several {
		return t.normal()
	}
	for o := range t.orders {
		if waits(o) && (first == nil || t.shares.due(&o.merit, l) < t.shares.due(&first.merit, l)) {
			first = o
		}
	}
	return first
}

func (o *order[Q]) asks() bool         { return o.lines[askLine].queues > 0 }
func (o *order[Q]) prepares() bool     { return o.lines[prepareLine].queues > 0 }
func (o *order[Q]) waitsForRoom() bool { return o.room.size > 0 }

// IsFirstOnWay reports whether the next turn to make a job ready belongs to a priority that has no job on its way to a
// slot. Such a job may be made ready even if there is no room for it. Otherwise a less urgent job could have been made
// ready while the keys of a more urgent priority could not be called. It would then get the next slot, and its priority
// would get half of all calls.
func (t *Turns[Q]) IsFirstOnWay() bool {
	if !t.shares.several {
		return false
	}
	o := t.first(prepareLine, (*order[Q]).prepares)
	return o != nil && t.shares.onWay[o.merit.priority-bucket.High] == 0
}

// InRow returns for how many calls in a row a queue may ask in the turn of priority p. The calls that p may make before
// the turn of another priority are divided evenly among the queues that ask in the turn of p. InRow returns 0 if no
// other priority waits, otherwise at least 1.
func (t *Turns[Q]) InRow(q Q, p bucket.Priority) int {
	if !t.shares.several {
		return 0
	}
	o, n := t.of(p), ServiceTime(0)
	each := t.shares.each(&o.merit)
	from := t.shares.due(&o.merit, askLine) - ServiceTime(o.seat(q).asks)*each
	for other := range t.orders {
		if other == o || !other.asks() && other.merit.asked == 0 {
			continue
		}
		until := t.shares.due(&other.merit, askLine)
		if o.merit.priority < other.merit.priority {
			until++ // a more urgent priority comes first among equals
		}
		if row := max(1, (until-from+each-1)/each); n == 0 || row < n {
			n = row
		}
	}
	if n == 0 {
		return 0
	}
	return max(1, int(min(n, MostInRow))/(1+o.lines[askLine].queues))
}

// MostInRow bounds the calls for which a queue asks in one turn.
const MostInRow = 64

// Wait makes a queue wait for its turn at the shared limits, unless it already waits.
func (t *Turns[Q]) Wait(q Q, p bucket.Priority) { t.of(p).wait(q) }

// ToAsk gives the turn at the shared limits to the queue that is next, and returns it; ok is false if none waits.
// costly says that a shared limit refused the cost of the queue's call.
func (t *Turns[Q]) ToAsk() (q Q, costly, ok bool) {
	o := t.first(askLine, (*order[Q]).asks)
	if o == nil {
		return q, false, false
	}
	if q, ok = o.toAsk(); ok {
		costly = o.seat(q).Costly
	}
	return q, costly, ok
}

// ToPrepare returns the queue that will be first at the shared limits; ok is false if none waits. It gives that queue
// the turn to make a job ready.
func (t *Turns[Q]) ToPrepare() (q Q, ok bool) {
	if o := t.first(prepareLine, (*order[Q]).prepares); o != nil {
		return o.toPrepare()
	}
	return q, false
}

// Pass ends the turns that a queue has and cannot use now.
func (t *Turns[Q]) Pass(q Q) {
	for _, p := range q.Seats().priorities() {
		t.of(p).pass(q)
	}
}

// Take ends a queue's turn to ask, and lends the queue its tenant's turn for the n calls for which it is about to ask.
// each is the service time that one of them takes.
func (t *Turns[Q]) Take(q Q, p bucket.Priority, each ServiceTime, n int) { t.of(p).take(q, each, n) }

// Book charges a queue for its grants, and takes back what the queue was lent for its calls.
func (t *Turns[Q]) Book(q Q, p bucket.Priority, grants int) { t.of(p).book(q, grants) }

// Heard notes what the store said of other processes: how many keys of the queue's tenant wait there, and all
// processes' part of the priority, in thousandths of this one's.
func (t *Turns[Q]) Heard(q Q, p bucket.Priority, elsewhere, whole int) {
	q.Seats().of(p).tenant.elsewhere = elsewhere
	t.of(p).merit.whole = whole
}

// Refuse notes that a shared limit refused a call of this cost; cost is 0 if none did. A queue with a costly call asks
// last in its round.
func (t *Turns[Q]) Refuse(q Q, p bucket.Priority, cost int64) { q.Seats().of(p).refuse(cost) }

// Taken is a queue that was taken from a line.
type Taken[Q Queue[Q]] struct {
	Queue    Q
	Priority bucket.Priority // of the turn for which it waited
}

// TakeAll takes all queues that wait to ask, in the order of their turns. The caller must put each of them back.
func (t *Turns[Q]) TakeAll() (waiting []Taken[Q]) {
	for o := t.first(askLine, (*order[Q]).asks); o != nil; o = t.first(askLine, (*order[Q]).asks) {
		q, ok := o.pop(askLine)
		if !ok {
			break
		}
		waiting = append(waiting, Taken[Q]{q, o.merit.priority})
	}
	return waiting
}

// PutBack makes a queue wait again that was taken from a line.
func (t *Turns[Q]) PutBack(from Taken[Q]) { t.of(from.Priority).putBack(from.Queue) }

// Forget removes lost queues from all lines.
func (t *Turns[Q]) Forget(lost func(Q) bool) {
	for o := range t.orders {
		o.forget(lost)
	}
}

// RoomWaiting returns how many queues wait for room to make a job ready.
func (t *Turns[Q]) RoomWaiting() (n int) {
	for o := range t.orders {
		n += o.room.size
	}
	return n
}

// ToRoom takes the queue whose turn it is to make a job ready, now that there is room. At least one queue must be
// waiting.
func (t *Turns[Q]) ToRoom() Q {
	o := t.first(prepareLine, (*order[Q]).waitsForRoom)
	return o.room.pop(o.merit.priority)
}

// AwaitRoom makes a queue wait for room for a job of a priority, unless it already waits.
func (t *Turns[Q]) AwaitRoom(q Q, p bucket.Priority) { t.of(p).room.push(q, p) }

// Rivals is what a forecast of a queue's next turn depends on.
type Rivals struct {
	Asking  int // queues of the priority that wait to ask
	Before  int // queues of the tenant that have their turn before the queue
	Tenants int // tenants that take turns, the queue's own included
	Keys    int // queues of the tenant, 1 if it has none
}

// Rivals returns the rivals of a tenant's queue for the turns of a priority. q may be nil, for a queue that comes now.
func (t *Turns[Q]) Rivals(q Q, p bucket.Priority, tenant string) Rivals {
	o := t.all[p-bucket.High]
	if o == nil {
		return Rivals{Tenants: 1, Keys: 1}
	}
	of, none := o.tenants[tenant], *new(Q)
	r := Rivals{Asking: o.asking(), Tenants: max(1, len(o.tenants)), Keys: 1}
	switch {
	case of == nil:
		r.Tenants++
		return r
	case q != none && q.Seats().has(p):
		r.Before = ahead(of, q, o.seat(q))
	default:
		r.Before = ahead(of, none, nil)
	}
	r.Keys = of.queues
	return r
}

// Has reports whether there were jobs of a priority.
func (t *Turns[Q]) Has(p bucket.Priority) bool { return t.all[p-bucket.High] != nil }

// Left returns how many tenants have queues of a priority, how many of them have queues that wait for a slot, and how
// many calls have the turn and no slot yet.
func (t *Turns[Q]) Left(p bucket.Priority) (tenants, coming, asked int) {
	if o := t.all[p-bucket.High]; o != nil {
		return len(o.tenants), len(o.coming), o.merit.asked
	}
	return 0, 0, 0
}

package dispatcher

import (
	"container/heap"
	"iter"
	"math"

	"weir/bucket"
)

// toll is how long a call keeps the shared limit that it burdens most, in microseconds; 1 where keys share nothing.
// Measured so, a call that takes 20 tokens of a thousand a second weighs as much as two that take one permit of a
// hundred: the dominant share of Ghodsi and others (NSDI 2011), counted in time.
type toll int64

const mostToll = toll(1) << 44 // half a year: sums of any number of them stay far from overflow

// tenant are the keys that share a turn: all keys of an api where no tenants are named.
type tenant struct {
	name  string
	lines int // of the schedule that are its own

	pass    toll // what its calls have taken: its place among the tenants
	lent    toll // to its lines that have the turn and no slot yet
	came    uint64
	place   int  // among the tenants that wait, -1 when it does not
	clock   toll // of its lines: the pass of the one that was granted a slot last
	blocked turnHeap
	queued  []*line // for room, in order
}

// turns are the lines that wait for a shared limit, or for a call to end, in the order in which they are to be asked for
// again: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996), first among tenants and then among the lines of
// one. Whoever has taken least is next; who was away gets no credit for it. It is better than a deficit round robin in
// that a costly call need not wait for its quantum to add up; a turn costs O(log n) in the lines that wait.
type turns struct {
	tenants tenantHeap
	clock   toll // the pass of the tenant that was granted a slot last
	size    int
	coming  uint64
}

// push lets a line wait for its turn.
func (w *turns) push(l *line) {
	t := l.tenant
	l.pass = max(l.pass, t.clock)
	w.coming++
	if len(t.blocked) == 0 {
		t.pass, t.came = max(t.pass, w.clock), w.coming
		heap.Push(&w.tenants, t)
	}
	t.blocked.push(turn{l.pass, w.coming, l})
	w.size++
}

// pop gives the turn to the line that has waited for it longest, in tolls, and lends it what it took last time, so that
// the next turn is another tenant's. nil when nobody waits.
func (w *turns) pop() *line {
	if len(w.tenants) == 0 {
		return nil
	}
	t := w.tenants[0]
	l := t.next()
	w.size--
	if len(t.blocked) == 0 {
		heap.Pop(&w.tenants)
	}
	w.lend(l, max(l.toll, 1))
	return l
}

// next takes the line that has taken least. What a line was granted while it waited is counted now.
func (t *tenant) next() *line {
	for {
		first := t.blocked.pop()
		if first.line.pass <= first.pass {
			return first.line
		}
		t.blocked.push(turn{first.line.pass, first.came, first.line})
	}
}

// lend changes what a line has been lent of its tenant's turn.
func (w *turns) lend(l *line, d toll) {
	l.tenant.lent += d - l.lent
	l.lent = d
	w.reorder(l.tenant)
}

// took books what a line was granted, and takes back what it was lent.
func (w *turns) took(l *line, d toll) {
	t := l.tenant
	if d > 0 {
		w.clock, t.clock = max(w.clock, t.pass), max(t.clock, l.pass)
		t.pass, l.pass = t.pass+d, l.pass+d
	}
	w.lend(l, 0)
}

func (w *turns) reorder(t *tenant) {
	if t.place >= 0 {
		heap.Fix(&w.tenants, t.place)
	}
}

// seat is where a line stands that asks without having waited: no further ahead than those who are being called.
func (w *turns) seat(l *line) {
	l.pass = max(l.pass, l.tenant.clock)
	if l.tenant.place == notWaiting {
		l.tenant.pass = max(l.tenant.pass, w.clock)
	}
}

// all goes through the lines that wait, in no order.
func (w *turns) all() iter.Seq[*line] {
	return func(yield func(*line) bool) {
		for _, t := range w.tenants {
			for i := range t.blocked {
				if !yield(t.blocked[i].line) {
					return
				}
			}
		}
	}
}

// rota are the lines that wait for room to make a job ready. Tenants take turns at it, a job a turn, and so do the lines
// of each.
type rota struct {
	tenants []*tenant
	size    int
}

func (r *rota) push(l *line) {
	t := l.tenant
	if len(t.queued) == 0 {
		r.tenants = append(r.tenants, t)
	}
	t.queued = append(t.queued, l)
	r.size++
}

// pop takes the line whose turn it is. One must wait.
func (r *rota) pop() *line {
	t := r.tenants[0]
	r.tenants[0] = nil
	r.tenants = r.tenants[1:]
	l := t.queued[0]
	t.queued[0] = nil
	t.queued = t.queued[1:]
	if len(t.queued) > 0 {
		r.tenants = append(r.tenants, t)
	} else {
		t.queued = nil
	}
	r.size--
	return l
}

// join makes a line its tenant's.
func (s *schedule) join(l *line) {
	name := s.rules.Tenant(l.key)
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, place: notWaiting}
		s.tenants[name] = t
	}
	t.lines++
	l.tenant = t
}

// leave takes a line from its tenant. A tenant lasts as long as it has unfinished jobs.
func (s *schedule) leave(l *line) {
	s.blocked.lend(l, 0)
	t := l.tenant
	if t.lines--; t.lines == 0 && s.tenants[t.name] == t {
		delete(s.tenants, t.name)
	}
	l.tenant = nil
}

// takeTurn lends a line what its tasks are about to be asked for.
func (s *schedule) takeTurn(l *line, tasks []*task) {
	if !l.called {
		s.blocked.seat(l)
	}
	l.called, l.toll = false, s.tollOf(tasks[0].costs)
	s.blocked.lend(l, l.toll*toll(len(tasks)))
}

// reseat lets every line wait anew under new rules, whose tolls do not compare with those of before. Every line is then to
// be rebound.
func (s *schedule) reseat() {
	for _, t := range s.tenants { // lines that are not rebound yet are theirs still, and may leave meanwhile
		t.place, t.blocked, t.queued = notWaiting, nil, nil
	}
	s.blocked, s.queue, s.tenants = turns{}, rota{}, map[string]*tenant{}
	s.units = unitsOf(s.rules)
}

// unitsOf is the time for which one unit keeps each shared limit, in microseconds.
func unitsOf(r *bucket.Rules) []float64 {
	units := make([]float64, len(r.Shared))
	for i := range r.Shared {
		switch l := &r.Shared[i]; {
		case l.Shadow:
		case l.Rate != nil:
			units[i] = float64(r.Interval(*l.Rate).Duration().Microseconds())
		case l.Quota != nil:
			units[i] = float64(l.Quota.Length().Microseconds()) / float64(l.Quota.Count)
		case l.Budget != nil:
			units[i] = float64(l.Budget.Length().Microseconds()) / float64(l.Budget.Count)
		}
	}
	return units
}

// tollOf is the toll of a call with these costs.
func (s *schedule) tollOf(costs []int64) toll {
	most := 1.0
	for i, cost := range costs {
		if i < len(s.units) { // costs may be of former rules
			most = max(most, float64(cost)*s.units[i])
		}
	}
	return toll(min(math.Ceil(most), float64(mostToll)))
}

// notWaiting is the place of a tenant none of whose lines waits.
const notWaiting = -1

// tenantHeap are the tenants that wait: by what they have taken and are lent, and where that is equal by who came first.
type tenantHeap []*tenant

func (h tenantHeap) Len() int { return len(h) }

func (h tenantHeap) Less(i, j int) bool {
	a, b := h[i].pass+h[i].lent, h[j].pass+h[j].lent
	return a < b || a == b && h[i].came < h[j].came
}

func (h tenantHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *tenantHeap) Push(x any) {
	t := x.(*tenant)
	t.place = len(*h)
	*h = append(*h, t)
}

// Pop implements heap.Interface.
func (h *tenantHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.place = notWaiting
	return t
}

// turn is a line that waits: its pass when it came, and the order of coming, which decides among equals.
type turn struct {
	pass toll
	came uint64
	line *line
}

// turnHeap are the waiting lines of a tenant. It holds values, so that a waiting line costs no allocation.
type turnHeap []turn

func (h turnHeap) before(i, j int) bool {
	return h[i].pass < h[j].pass || h[i].pass == h[j].pass && h[i].came < h[j].came
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

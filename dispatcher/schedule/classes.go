package schedule

import (
	"cmp"
	"slices"

	"weir/bucket"
)

// Within a key, priorities share the calls by start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Each
// waiting job has a tag: the key's virtual time at which its call is due. The tags of two successive jobs of a priority
// differ by one call divided by the priority's weight. The job with the least tag is next. If two tags are equal, the
// more urgent job is next. A priority that had no job continues at the key's virtual time, and gets no credit for
// having been away.
//
// Only the first tag of each priority is kept: the i-th job behind the first one has a tag that is i such distances
// later. So the schedule computes a job's place without looking at the other jobs. The tags are not stored: after a
// restart they begin again. This changes the order between priorities by at most one call of each, and never the order
// within one.
//
// A limit that keys share decides between priorities over all keys (turns.go). The tags of a key then only follow: no
// priority gains credit at the key while it waits for its turn at the limit. But if the key's own limits let only one
// call go at a time, each turn of the key goes to the job that its tags choose.

// tag is a time in the virtual time of a key. Job.tag is 0 while its key has only normal jobs.
type tag int64

// wholeTag is how far a call of weight 1 advances the virtual time. Weights that divide it are exact; other weights are
// off by at most 1 in 2,000.
const wholeTag tag = 1 << 20

// waits holds a key's waiting jobs. Its own backlog holds the normal ones.
type waits struct {
	backlog

	classes *classes // the jobs of other priorities; nil: the key has none
}

// classes holds a key's waiting jobs of other priorities than Normal, and the tags of all priorities. A key with only
// normal jobs has no classes. Normal jobs always wait in the queue's own backlog.
type classes struct {
	now tag // the virtual time: the largest tag of a job that was taken
	of  [len(bucket.Priorities)]class
}

// class holds a key's jobs of one priority.
type class struct {
	waits backlog // not used for Normal
	seat  seat    // not used for Normal
	next  tag     // tag of the first waiting job; if none waits, the least tag that the next job may get
	step  tag     // from one job to the next
}

// newClasses returns the classes of a key that has only normal jobs. Its waiting jobs get tags from the virtual time 1
// on, so they come after its jobs that are near their calls and have the tag 0.
func newClasses(w bucket.Weights) *classes {
	c := &classes{now: 1}
	for i := range c.of {
		c.of[i].next = c.now
	}
	c.weigh(w)
	return c
}

// weigh sets the distance between the tags of each priority by its weight. The tag of each priority's first waiting job
// stays.
func (c *classes) weigh(w bucket.Weights) {
	for _, p := range bucket.Priorities {
		weight := tag(w.Of(p))
		c.class(p).step = (wholeTag + weight/2) / weight
	}
}

func (c *classes) class(p bucket.Priority) *class { return &c.of[p-bucket.High] }

// took notes that a priority's first waiting job is taken now, and advances the virtual time to the job's tag.
func (c *classes) took(p bucket.Priority) {
	t := c.class(p).next
	c.follow(p)
	c.reach(t)
}

// follow notes that a priority's first waiting job is taken ahead of its turn. The jobs behind it get the next tags.
// The virtual time stays, because turns of other priorities come before that job's turn.
func (c *classes) follow(p bucket.Priority) {
	of := c.class(p)
	of.next += of.step
}

// reach advances the virtual time to t, the tag of a job that was taken earlier and is made ready now.
func (c *classes) reach(t tag) {
	c.now = max(c.now, t)
	for i := range c.of {
		c.of[i].next = max(c.of[i].next, c.now)
	}
}

// forgone gives a priority its turn back, because a job that was taken for it ends without a call.
func (c *classes) forgone(p bucket.Priority) {
	of := c.class(p)
	of.next = max(c.now, of.next-of.step)
}

// sooner reports whether the next job of one priority comes before the next of another.
func (c *classes) sooner(p, other bucket.Priority) bool {
	a, b := c.class(p).next, c.class(other).next
	return a < b || a == b && p < other
}

// before returns how many of the n waiting jobs of priority p come before a job of priority other with tag t.
func (c *classes) before(p bucket.Priority, n int, other bucket.Priority, t tag) int {
	of := c.class(p)
	if p < other {
		t++ // a more urgent priority comes first among equal tags
	}
	if t <= of.next {
		return 0
	}
	return int(min(tag(n), (t-of.next+of.step-1)/of.step))
}

// onlyNormal holds the one priority of a key without classes.
var onlyNormal = bucket.Priorities[bucket.Normal-bucket.High : bucket.Low-bucket.High]

// priorities returns the priorities of which the queue may have jobs, the most urgent first.
func (w *waits) priorities() []bucket.Priority {
	if w.classes == nil {
		return onlyNormal
	}
	return bucket.Priorities[:]
}

// hasClass reports whether the queue may have jobs of a priority.
func (w *waits) hasClass(p bucket.Priority) bool { return p == bucket.Normal || w.classes != nil }

// of returns where the queue's jobs of a priority wait.
func (w *waits) of(p bucket.Priority) *backlog {
	if p == bucket.Normal {
		return &w.backlog
	}
	return &w.classes.class(p).waits
}

// seatOf returns the queue's seat among the turns of a priority.
func (q *KeyQueue) seatOf(p bucket.Priority) *seat {
	if p == bucket.Normal {
		return &q.seat
	}
	return &q.waits.classes.class(p).seat
}

// waitsForTurn reports whether the queue waits in a line of any priority. blocked says that it waits to ask, queued
// that it waits for room.
func (q *KeyQueue) waitsForTurn() (blocked, queued bool) {
	for _, p := range q.waits.priorities() {
		own := q.seatOf(p)
		blocked, queued = blocked || own.blocked, queued || own.queued
	}
	return blocked, queued
}

// comes prepares the queue for a callable job of a priority that is about to be added.
func (w *waits) comes(p bucket.Priority) {
	if c := w.classes; c != nil && !w.of(p).hasNext() {
		of := c.class(p)
		of.next = max(of.next, c.now)
	}
}

// firstOf returns the priority of the next waiting job; ok is false if none may be called yet.
func (w *waits) firstOf() (first bucket.Priority, ok bool) {
	for _, p := range w.priorities() {
		if w.of(p).hasNext() && (!ok || w.classes.sooner(p, first)) {
			first, ok = p, true
		}
	}
	return first, ok
}

// hasNext reports whether there is a waiting job that may be called.
func (w *waits) hasNext() bool {
	_, ok := w.firstOf()
	return ok
}

// size returns how many jobs wait, whether they may be called yet or not.
func (w *waits) size() (n int) {
	for _, p := range w.priorities() {
		n += w.of(p).size()
	}
	return n
}

// notDue returns how many jobs have not come due yet.
func (w *waits) notDue() (n int) {
	for _, p := range w.priorities() {
		n += w.of(p).notDue()
	}
	return n
}

// firstDue returns when the first early job is due, Never if there is none.
func (w *waits) firstDue() bucket.Micros {
	at := Never
	for _, p := range w.priorities() {
		at = min(at, w.of(p).early.next())
	}
	return at
}

// earlyBefore counts the early jobs that come due before the appointment one.
func (w *waits) earlyBefore(one appointment) (n int) {
	for _, p := range w.priorities() {
		n += w.of(p).early.before(one)
	}
	return n
}

// hasEarly reports whether jobs of the queue asked not to be called before a time.
func (w *waits) hasEarly() bool {
	return slices.ContainsFunc(w.priorities(), func(p bucket.Priority) bool { return w.of(p).early != nil })
}

// earlyBackward yields the early jobs that come due before the appointment one, the latest first.
func (w *waits) earlyBackward(one appointment) func(yield func(appointment) bool) {
	if w.classes == nil {
		return w.early.backward(one)
	}
	return func(yield func(appointment) bool) {
		var all []appointment
		for _, p := range w.priorities() {
			if w.of(p).early == nil {
				continue
			}
			n := 0
			for l := range w.of(p).early.backward(one) {
				if all = append(all, l); n == mostAppointments {
					break
				}
				n++
			}
		}
		slices.SortFunc(all, func(a, b appointment) int { return b.compare(a) })
		for _, l := range all {
			if !yield(l) {
				return
			}
		}
	}
}

// allEarly yields the early jobs with their priorities, in the order in which they come due.
func (w *waits) allEarly(yield func(appointment, bucket.Priority) bool) {
	if w.classes == nil {
		w.early.all(func(l appointment) bool { return yield(l, bucket.Normal) })
		return
	}
	type dated struct {
		appointment
		of bucket.Priority
	}
	var all []dated
	for _, p := range w.priorities() {
		for l := range w.of(p).early.all {
			all = append(all, dated{l, p})
		}
	}
	slices.SortFunc(all, func(a, b dated) int { return a.compare(b.appointment) })
	for _, l := range all {
		if !yield(l.appointment, l.of) {
			return
		}
	}
}

// spot is a job's place among all jobs of its key.
type spot struct {
	place
	of bucket.Priority
	at tag
}

// compare orders the jobs of a key: those of one priority by their places, all others by their tags.
func (s spot) compare(other spot) int {
	if s.of == other.of {
		return s.place.compare(other.place)
	}
	return cmp.Or(cmp.Compare(s.at, other.at), cmp.Compare(s.of, other.of))
}

func (j *Job) spot() spot { return spot{j.place, j.Priority, j.tag} }

// spotOf returns the spot of the n-th waiting job of a priority that may be called, counted from 0. at is the job's
// place.
func (w *waits) spotOf(p bucket.Priority, at place, n int) spot {
	s := spot{place: at, of: p}
	if c := w.classes; c != nil {
		of := c.class(p)
		s.at = of.next + tag(n)*of.step
	}
	return s
}

// before counts the waiting jobs that may be called and come before a spot.
func (w *waits) before(s spot) (n int) {
	for _, p := range w.priorities() {
		b := w.of(p)
		switch {
		case p == s.of:
			n += b.before(s.place)
		case b.hasNext():
			n += w.classes.before(p, b.size()-b.notDue(), s.of, s.at)
		}
	}
	return n
}

// callable is a copy of those waiting jobs of a queue that may be called. Removing jobs from the copy by pass does not
// change the queue.
type callable struct {
	of      [len(bucket.Priorities)]backlog
	classes classes
}

func (w *waits) callable() *callable {
	c := &callable{}
	if w.classes != nil {
		c.classes = *w.classes
	}
	for _, p := range w.priorities() {
		c.of[p-bucket.High] = w.of(p).due()
	}
	return c
}

// next returns the spot of the job that is called next; ok is false if none is left.
func (c *callable) next() (s spot, ok bool) {
	for _, p := range bucket.Priorities {
		if at, waits := c.of[p-bucket.High].next(); waits && (!ok || c.classes.sooner(p, s.of)) {
			s, ok = spot{at, p, c.classes.class(p).next}, true
		}
	}
	return s, ok
}

// pass removes the job that is called next, given its spot.
func (c *callable) pass(s spot) {
	c.of[s.of-bucket.High].pass(s.place)
	c.classes.took(s.of)
}

// insert adds a Job at its place. It keeps the jobs of a priority in the order of their places, even if their tags were
// computed with other weights.
func (q *KeyQueue) insert(j *Job) {
	s := j.spot()
	if q.waits.classes == nil {
		i, _ := slices.BinarySearchFunc(q.Jobs, s, func(j *Job, s spot) int { return j.place.compare(s.place) })
		q.Jobs = slices.Insert(q.Jobs, i, j)
		return
	}
	least, most := 0, len(q.Jobs)
	for i, other := range q.Jobs {
		switch {
		case other.Priority != j.Priority:
		case other.place.compare(j.place) < 0:
			least = i + 1
		default:
			most = min(most, i)
		}
	}
	for most > least && s.compare(q.Jobs[most-1].spot()) < 0 {
		most--
	}
	q.Jobs = slices.Insert(q.Jobs, most, j)
}

// Behind returns how many of the key's jobs in the schedule would be called after a new job of priority p. The new job
// must not be called before at; at is 0 if it may be called at once.
func (v View) Behind(key string, at bucket.Micros, p bucket.Priority) (n int) {
	q := v.s.byKey[key]
	if q == nil {
		return 0
	}
	if at > v.now {
		return q.Early(at)
	}
	n = q.Early(v.now)
	c := q.waits.classes
	if c == nil {
		if p == bucket.Normal {
			return n
		}
		c = newClasses(v.s.policy.Rules.Weights)
	}
	own := c.class(p)
	t := max(own.next, c.now)
	if q.waits.hasClass(p) {
		b := q.waits.of(p)
		t += tag(b.size()-b.notDue()) * own.step
	}
	for _, other := range q.waits.priorities() {
		if b := q.waits.of(other); other != p {
			callable := b.size() - b.notDue()
			n += callable - c.before(other, callable, p, t)
		}
	}
	for _, j := range q.Jobs {
		if j.Priority != p && j.Phase < granted && j.spot().compare(spot{of: p, at: t}) > 0 {
			n++
		}
	}
	return n
}

// tidy drops the classes of a queue that has only normal jobs again. It keeps them while the queue has jobs and the
// tags of another priority are ahead of the virtual time: dropping them would forget that priority's calls.
func (s *step) tidy(q *KeyQueue) {
	c := q.waits.classes
	for _, p := range bucket.Priorities {
		of := c.class(p)
		if p != bucket.Normal && (!of.waits.isEmpty() || !of.seat.isIdle() || of.next > c.now && !q.Empty()) {
			return
		}
	}
	if slices.ContainsFunc(q.Jobs, func(j *Job) bool { return j.Priority != bucket.Normal || j.turnOf() != bucket.Normal }) {
		return
	}
	s.turns.leaveClasses(q)
	s.packs.gatherSince(q, bucket.High, 0)
	s.packs.gatherSince(q, bucket.Low, 0)
	for _, j := range q.Jobs {
		j.tag = 0 // the jobs are in order without tags
	}
	q.waits.classes = nil
}

// classify prepares a queue for jobs of a priority.
func (s *Schedule) classify(q *KeyQueue, p bucket.Priority) {
	if q.waits.classes == nil && p != bucket.Normal {
		q.waits.classes = newClasses(s.policy.Rules.Weights)
	}
	if q.seatOf(p).tenant == nil {
		s.turns.join(q, p, s.policy.Rules.Tenant(q.Key))
	}
}

// seats returns the priorities for whose turns the queue has a seat.
func (q *KeyQueue) seats() []bucket.Priority {
	if q.waits.classes == nil {
		return onlyNormal
	}
	var all []bucket.Priority
	for _, p := range bucket.Priorities {
		if p == bucket.Normal || q.seatOf(p).tenant != nil {
			all = append(all, p)
		}
	}
	return all
}

// classSet is a set of priorities.
type classSet uint8

const allClasses classSet = 1<<len(bucket.Priorities) - 1

func (s classSet) has(p bucket.Priority) bool { return s>>(p-bucket.High)&1 != 0 }

func (s classSet) with(p bucket.Priority) classSet { return s | 1<<(p-bucket.High) }

func (s classSet) without(p bucket.Priority) classSet { return s &^ (1 << (p - bucket.High)) }

package backlog

import (
	"cmp"
	"slices"

	"weir/bucket"
)

// Backlog holds a key's waiting jobs. The zero Backlog is empty. Most keys have only normal jobs, and then it keeps
// nothing for other priorities.
type Backlog struct {
	normal List

	classes *classes // the jobs of other priorities; nil: the key has none
}

// onlyNormal holds the one priority of a key without classes.
var onlyNormal = bucket.Priorities[bucket.Normal-bucket.High : bucket.Low-bucket.High]

// Mix prepares the backlog for jobs of a priority.
func (b *Backlog) Mix(p bucket.Priority, w bucket.Weights) {
	if b.classes == nil && p != bucket.Normal {
		b.classes = newClasses(w)
	}
}

// IsMixed reports whether the key may have jobs of other priorities than Normal.
func (b *Backlog) IsMixed() bool { return b.classes != nil }

// Unmix forgets the other priorities if none of their jobs waits, and reports whether it did. While the key has jobs,
// which isIdle denies, and the tags of another priority are ahead of the virtual time, it keeps them: else it would
// forget that priority's calls.
func (b *Backlog) Unmix(isIdle bool) bool {
	for _, p := range bucket.Priorities {
		of := b.classes.class(p)
		if p != bucket.Normal && (!of.waits.IsEmpty() || of.next > b.classes.now && !isIdle) {
			return false
		}
	}
	b.classes = nil
	return true
}

// Weigh gives the priorities new weights.
func (b *Backlog) Weigh(w bucket.Weights) {
	if b.classes != nil {
		b.classes.weigh(w)
	}
}

// Priorities returns the priorities of which the key may have jobs, the most urgent first.
func (b *Backlog) Priorities() []bucket.Priority {
	if b.classes == nil {
		return onlyNormal
	}
	return bucket.Priorities[:]
}

// Has reports whether the key may have jobs of a priority.
func (b *Backlog) Has(p bucket.Priority) bool { return p == bucket.Normal || b.classes != nil }

// Of returns the waiting jobs of a priority. The key must be prepared for it.
func (b *Backlog) Of(p bucket.Priority) *List {
	if p == bucket.Normal {
		return &b.normal
	}
	return &b.classes.class(p).waits
}

// Add appends a job of a priority that may be called at once.
func (b *Backlog) Add(p bucket.Priority, seq uint64) {
	b.comes(p)
	b.Of(p).Add(seq)
}

// Release lets the early jobs of a priority be called that are due at now. Their places are behind the sequence after.
// Release returns how many there are.
func (b *Backlog) Release(p bucket.Priority, now bucket.Micros, after uint64) int {
	of := b.Of(p)
	if of.early.next() > now {
		return 0
	}
	b.comes(p)
	return of.release(now, after)
}

// comes prepares the backlog for a callable job of a priority that is about to be added.
func (b *Backlog) comes(p bucket.Priority) {
	if c := b.classes; c != nil && !b.Of(p).HasNext() {
		of := c.class(p)
		of.next = max(of.next, c.now)
	}
}

// Take takes the first job of a priority that may be called, and counts it as a call. There must be such a job.
func (b *Backlog) Take(p bucket.Priority) Spot {
	s := b.Drop(p)
	if b.classes != nil {
		b.classes.took(p)
	}
	return s
}

// TakeAhead takes the first job of a priority that may be called, before its slot is near. The job counts as a call
// only when Reach gets its tag. There must be such a job.
func (b *Backlog) TakeAhead(p bucket.Priority) Spot {
	s := b.Drop(p)
	if b.classes != nil {
		b.classes.follow(p)
	}
	return s
}

// Reach counts a job as a call that TakeAhead took, or that rested: it is made ready now.
func (b *Backlog) Reach(t Tag) {
	if b.classes != nil {
		b.classes.reach(t)
	}
}

// Forgo gives a priority its turn back, because a job with a tag ends without a call.
func (b *Backlog) Forgo(p bucket.Priority, t Tag) {
	if b.classes != nil && t != 0 {
		b.classes.forgone(p)
	}
}

// Drop takes the first job of a priority that may be called, without counting it as a call. There must be such a job.
func (b *Backlog) Drop(p bucket.Priority) Spot {
	of := b.Of(p)
	at, _ := of.Next()
	of.Pass(at)
	return b.spotOf(p, at, 0)
}

// Extract takes a job at any place. It returns the time before which the job must not be called, 0 for none.
func (b *Backlog) Extract(seq uint64) (s Spot, notBefore bucket.Micros, was State) {
	for _, p := range b.Priorities() {
		of := b.Of(p)
		at, notBefore, was := of.take(seq)
		if was != Absent {
			return b.spotOf(p, at, of.Before(at)), notBefore, was
		}
	}
	return Spot{}, 0, Absent
}

// IsDue reports whether a job waits and may be called.
func (b *Backlog) IsDue(seq uint64) bool {
	return slices.ContainsFunc(b.Priorities(), func(p bucket.Priority) bool {
		_, due := b.Of(p).placeOf(seq)
		return due
	})
}

// Find returns how a job waits: the spot of a job that may be called, or the appointment of one that is early.
func (b *Backlog) Find(seq uint64) (s Spot, l Appointment, is State) {
	for _, p := range b.Priorities() {
		of := b.Of(p)
		if at, ok := of.placeOf(seq); ok {
			return b.spotOf(p, at, of.Before(at)), Appointment{}, Due
		}
		for l := range of.early.all {
			if l.Seq == seq {
				return Spot{}, l, Early
			}
		}
	}
	return Spot{}, Appointment{}, Absent
}

// First returns the priority of the next waiting job; ok is false if none may be called yet.
func (b *Backlog) First() (first bucket.Priority, ok bool) {
	for _, p := range b.Priorities() {
		if b.Of(p).HasNext() && (!ok || b.classes.sooner(p, first)) {
			first, ok = p, true
		}
	}
	return first, ok
}

// Tag returns the tag of the next waiting job of a priority. The key must have classes.
func (b *Backlog) Tag(p bucket.Priority) Tag { return b.classes.class(p).next }

// HasNext reports whether there is a waiting job that may be called.
func (b *Backlog) HasNext() bool {
	_, ok := b.First()
	return ok
}

// Size returns how many jobs wait, whether they may be called yet or not.
func (b *Backlog) Size() (n int) {
	for _, p := range b.Priorities() {
		n += b.Of(p).Size()
	}
	return n
}

// NotDue returns how many jobs have not come due yet.
func (b *Backlog) NotDue() (n int) {
	for _, p := range b.Priorities() {
		n += b.Of(p).NotDue()
	}
	return n
}

// NotDueAt returns how many jobs are not due at a time.
func (b *Backlog) NotDueAt(now bucket.Micros) int { return b.NotDue() - b.EarlyBefore(LastAt(now)) }

// FirstDue returns when the first early job is due, bucket.Never if there is none.
func (b *Backlog) FirstDue() bucket.Micros {
	at := bucket.Never
	for _, p := range b.Priorities() {
		at = min(at, b.Of(p).early.next())
	}
	return at
}

// EarlyBefore counts the early jobs that come due before the appointment one.
func (b *Backlog) EarlyBefore(one Appointment) (n int) {
	for _, p := range b.Priorities() {
		n += b.Of(p).early.before(one)
	}
	return n
}

// HasEarly reports whether jobs of the key asked not to be called before a time.
func (b *Backlog) HasEarly() bool {
	return slices.ContainsFunc(b.Priorities(), func(p bucket.Priority) bool { return b.Of(p).early != nil })
}

// MostAppointments bounds the early jobs of a priority that EarlyBackward yields if the key has several priorities. A
// forecast looks at no more.
const MostAppointments = 1024

// EarlyBackward yields the early jobs that come due before the appointment one, the latest first.
func (b *Backlog) EarlyBackward(one Appointment) func(yield func(Appointment) bool) {
	if b.classes == nil {
		return b.normal.early.backward(one)
	}
	return func(yield func(Appointment) bool) {
		var all []Appointment
		for _, p := range b.Priorities() {
			if b.Of(p).early == nil {
				continue
			}
			n := 0
			for l := range b.Of(p).early.backward(one) {
				if all = append(all, l); n == MostAppointments {
					break
				}
				n++
			}
		}
		slices.SortFunc(all, func(a, b Appointment) int { return b.compare(a) })
		for _, l := range all {
			if !yield(l) {
				return
			}
		}
	}
}

// AllEarly yields the early jobs with their priorities, in the order in which they come due.
func (b *Backlog) AllEarly(yield func(Appointment, bucket.Priority) bool) {
	if b.classes == nil {
		b.normal.early.all(func(l Appointment) bool { return yield(l, bucket.Normal) })
		return
	}
	type dated struct {
		Appointment
		of bucket.Priority
	}
	var all []dated
	for _, p := range b.Priorities() {
		for l := range b.Of(p).early.all {
			all = append(all, dated{l, p})
		}
	}
	slices.SortFunc(all, func(a, b dated) int { return a.compare(b.Appointment) })
	for _, l := range all {
		if !yield(l.Appointment, l.of) {
			return
		}
	}
}

// Seqs yields the sequences of all waiting jobs.
func (b *Backlog) Seqs(yield func(seq uint64) bool) {
	for _, p := range b.Priorities() {
		more := true
		b.Of(p).Seqs(func(seq uint64) bool {
			more = yield(seq)
			return more
		})
		if !more {
			return
		}
	}
}

// Move shifts the due times of all early jobs.
func (b *Backlog) Move(by bucket.Micros) {
	for _, p := range b.Priorities() {
		b.Of(p).move(by)
	}
}

// Spot is a job's place among all jobs of its key.
type Spot struct {
	Place
	Of bucket.Priority
	At Tag
}

// Compare orders the jobs of a key: those of one priority by their places, all others by their tags.
func (s Spot) Compare(other Spot) int {
	if s.Of == other.Of {
		return s.Place.Compare(other.Place)
	}
	return cmp.Or(cmp.Compare(s.At, other.At), cmp.Compare(s.Of, other.Of))
}

// spotOf returns the spot of the n-th waiting job of a priority that may be called, counted from 0. at is the job's
// place.
func (b *Backlog) spotOf(p bucket.Priority, at Place, n int) Spot {
	s := Spot{Place: at, Of: p}
	if c := b.classes; c != nil {
		of := c.class(p)
		s.At = of.next + Tag(n)*of.step
	}
	return s
}

// Before counts the waiting jobs that may be called and come before a spot.
func (b *Backlog) Before(s Spot) (n int) {
	for _, p := range b.Priorities() {
		of := b.Of(p)
		switch {
		case p == s.Of:
			n += of.Before(s.Place)
		case of.HasNext():
			n += b.classes.before(p, of.Due(), s.Of, s.At)
		}
	}
	return n
}

// Behind counts the waiting jobs of other priorities that may be called, and would be called after a job of priority p
// that came now. It returns the tag of that job. w are the weights by which the key would get its classes.
func (b *Backlog) Behind(p bucket.Priority, w bucket.Weights) (n int, t Tag) {
	c := b.classes
	if c == nil {
		c = newClasses(w)
	}
	own := c.class(p)
	t = max(own.next, c.now)
	if b.Has(p) {
		t += Tag(b.Of(p).Due()) * own.step
	}
	for _, other := range b.Priorities() {
		if other != p {
			due := b.Of(other).Due()
			n += due - c.before(other, due, p, t)
		}
	}
	return n, t
}

// Callable is a copy of those waiting jobs of a key that may be called. To remove jobs from the copy does not change
// the backlog.
type Callable struct {
	of      [len(bucket.Priorities)]List
	classes classes
}

// Callable copies the waiting jobs that may be called.
func (b *Backlog) Callable() *Callable {
	c := &Callable{}
	if b.classes != nil {
		c.classes = *b.classes
	}
	for _, p := range b.Priorities() {
		c.of[p-bucket.High] = b.Of(p).callable()
	}
	return c
}

// Next returns the spot of the job that is called next; ok is false if none is left.
func (c *Callable) Next() (s Spot, ok bool) {
	for _, p := range bucket.Priorities {
		if at, waits := c.of[p-bucket.High].Next(); waits && (!ok || c.classes.sooner(p, s.Of)) {
			s, ok = Spot{at, p, c.classes.class(p).next}, true
		}
	}
	return s, ok
}

// Pass removes the job that is called next, given its spot.
func (c *Callable) Pass(s Spot) {
	c.of[s.Of-bucket.High].Pass(s.Place)
	c.classes.took(s.Of)
}

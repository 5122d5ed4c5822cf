package backlog

import (
	"slices"

	"weir/bucket"
)

// List holds the stream sequences of a key's waiting jobs of one priority, in the order in which they are called. Each
// job is in one of two lists. The jobs that may be called are in the order of their places. The early jobs are in the
// order of their due times.
type List struct {
	first uint64   // the oldest sequence that asked for no time, 0 for none; apart because most keys have one job
	more  []uint64 // the sequences behind first, in rising order
	early *early   // jobs that asked not to be called before a time; nil for none
}

// Size returns how many jobs wait, whether they may be called yet or not.
func (b *List) Size() int { return b.Due() + b.NotDue() }

// Due returns how many jobs may be called.
func (b *List) Due() int {
	n := len(b.more)
	if b.first != 0 {
		n++
	}
	if b.early != nil {
		n += len(b.early.due)
	}
	return n
}

// NotDue returns how many jobs have not come due yet.
func (b *List) NotDue() int {
	if b.early == nil {
		return 0
	}
	return b.early.size
}

// IsEmpty reports whether no job waits.
func (b *List) IsEmpty() bool { return b.first == 0 && b.early == nil }

// Add appends a job that may be called at once. Sequences come in rising order.
func (b *List) Add(seq uint64) {
	if b.first == 0 {
		b.first = seq
		return
	}
	b.more = append(b.more, seq)
}

// AddEarly adds a job that must not be called yet.
func (b *List) AddEarly(l Appointment) {
	if b.early == nil {
		b.early = &early{}
	}
	b.early.add(l)
}

// release moves the jobs that are due at now to those that may be called. Their places are behind the sequence after.
// release returns how many jobs it moved.
func (b *List) release(now bucket.Micros, after uint64) int {
	if b.early == nil {
		return 0
	}
	return b.early.release(now, after)
}

// Next returns the place of the first job that may be called; ok is false if none may be called yet.
func (b *List) Next() (p Place, ok bool) {
	if b.first != 0 {
		p, ok = Place{after: b.first, Seq: b.first}, true
	}
	if b.early != nil && len(b.early.due) > 0 && (!ok || b.early.due[0].Compare(p) < 0) {
		p, ok = b.early.due[0], true
	}
	return p, ok
}

// HasNext reports whether a job may be called.
func (b *List) HasNext() bool { return b.first != 0 || b.early != nil && len(b.early.due) > 0 }

// Pass removes the first job that may be called, given its place.
func (b *List) Pass(p Place) {
	if p.at != 0 {
		b.early.due = b.early.due[1:]
		b.shed()
		return
	}
	b.first = 0
	if len(b.more) > 0 {
		b.first, b.more = b.more[0], b.more[1:]
		if len(b.more) == 0 {
			b.more = nil
		}
	}
}

// take removes the job with a sequence from the list that holds it. notBefore is the time before which the job must not
// be called, 0 for none.
func (b *List) take(seq uint64) (p Place, notBefore bucket.Micros, was State) {
	p = Place{after: seq, Seq: seq}
	if b.first == seq {
		b.Pass(p)
		return p, 0, Due
	}
	if i, ok := slices.BinarySearch(b.more, seq); ok {
		b.more = slices.Delete(b.more, i, i+1)
		return p, 0, Due
	}
	if b.early != nil {
		notBefore, p, was = b.early.take(seq)
		b.shed()
	}
	return p, notBefore, was
}

// shed frees an empty list of early jobs.
func (b *List) shed() {
	if b.early.size == 0 && len(b.early.due) == 0 {
		b.early = nil
	}
}

// placeOf returns the place of a job that may be called.
func (b *List) placeOf(seq uint64) (p Place, ok bool) {
	_, ok = slices.BinarySearch(b.more, seq)
	if ok || b.first == seq && seq != 0 {
		return Place{after: seq, Seq: seq}, true
	}
	if b.early != nil {
		if i := slices.IndexFunc(b.early.due, func(p Place) bool { return p.Seq == seq }); i >= 0 {
			return b.early.due[i], true
		}
	}
	return Place{}, false
}

// Before counts the jobs that may be called and come before a place.
func (b *List) Before(p Place) (n int) {
	byPlace := func(seq uint64, p Place) int { return Place{after: seq, Seq: seq}.Compare(p) }
	if b.first != 0 && byPlace(b.first, p) < 0 {
		n, _ = slices.BinarySearchFunc(b.more, p, byPlace)
		n++
	}
	if b.early != nil {
		i, _ := slices.BinarySearchFunc(b.early.due, p, Place.Compare)
		n += i
	}
	return n
}

// Seqs yields all sequences.
func (b *List) Seqs(yield func(seq uint64) bool) {
	if b.first != 0 && !yield(b.first) {
		return
	}
	for _, seq := range b.more {
		if !yield(seq) {
			return
		}
	}
	if b.early == nil {
		return
	}
	for _, p := range b.early.due {
		if !yield(p.Seq) {
			return
		}
	}
	for l := range b.early.all {
		if !yield(l.Seq) {
			return
		}
	}
}

// callable returns a copy that holds only the jobs that may be called. Removing jobs from the copy by Pass does not
// change b.
func (b *List) callable() List {
	due := List{first: b.first, more: b.more}
	if b.early != nil {
		due.early = &early{due: b.early.due}
	}
	return due
}

// move shifts the due times of the early jobs.
func (b *List) move(by bucket.Micros) {
	if b.early == nil {
		return
	}
	for _, run := range b.early.runs {
		for i := range run {
			run[i].At += by
		}
	}
	for i := range b.early.due {
		b.early.due[i].at += by
	}
}

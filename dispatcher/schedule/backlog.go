package schedule

import (
	"slices"

	"weir/bucket"
)

// backlog holds the stream sequences of a key's waiting jobs, in the order in which they are called. Each job is in one
// of two lists. The jobs that may be called are in the order of their places. The early jobs are in the order of their
// due times.
type backlog struct {
	first uint64   // the oldest sequence that asked for no time, 0 for none; apart because most keys have one job
	more  []uint64 // the sequences behind first, in rising order
	early *early   // jobs that asked not to be called before a time; nil for none
}

// size returns how many jobs wait, whether they may be called yet or not.
func (b *backlog) size() int {
	n := len(b.more) + b.notDue()
	if b.first != 0 {
		n++
	}
	if b.early != nil {
		n += len(b.early.due)
	}
	return n
}

// notDue returns how many jobs have not come due yet.
func (b *backlog) notDue() int {
	if b.early == nil {
		return 0
	}
	return b.early.size
}

func (b *backlog) isEmpty() bool { return b.first == 0 && b.early == nil }

// add appends a job that may be called at once. Sequences come in rising order.
func (b *backlog) add(seq uint64) {
	if b.first == 0 {
		b.first = seq
		return
	}
	b.more = append(b.more, seq)
}

// addEarly adds a job that must not be called yet.
func (b *backlog) addEarly(l appointment) {
	if b.early == nil {
		b.early = &early{}
	}
	b.early.add(l)
}

// release moves the jobs that are due at now to those that may be called. Their places are behind the sequence after.
// release returns how many jobs it moved.
func (b *backlog) release(now bucket.Micros, after uint64) int {
	if b.early == nil {
		return 0
	}
	return b.early.release(now, after)
}

// next returns the place of the first job that may be called; ok is false if none may be called yet.
func (b *backlog) next() (p place, ok bool) {
	if b.first != 0 {
		p, ok = place{after: b.first, seq: b.first}, true
	}
	if b.early != nil && len(b.early.due) > 0 && (!ok || b.early.due[0].compare(p) < 0) {
		p, ok = b.early.due[0], true
	}
	return p, ok
}

// hasNext reports whether a job may be called.
func (b *backlog) hasNext() bool { return b.first != 0 || b.early != nil && len(b.early.due) > 0 }

// pass removes the first job that may be called, given its place.
func (b *backlog) pass(p place) {
	if p.due != 0 {
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
func (b *backlog) take(seq uint64) (p place, notBefore bucket.Micros, was taken) {
	p = place{after: seq, seq: seq}
	if b.first == seq {
		b.pass(p)
		return p, 0, wasDue
	}
	if i, ok := slices.BinarySearch(b.more, seq); ok {
		b.more = slices.Delete(b.more, i, i+1)
		return p, 0, wasDue
	}
	if b.early != nil {
		notBefore, p, was = b.early.take(seq)
		b.shed()
	}
	return p, notBefore, was
}

// shed frees an empty list of early jobs.
func (b *backlog) shed() {
	if b.early.size == 0 && len(b.early.due) == 0 {
		b.early = nil
	}
}

// placeOf returns the place of a job that may be called.
func (b *backlog) placeOf(seq uint64) (p place, ok bool) {
	_, ok = slices.BinarySearch(b.more, seq)
	if ok || b.first == seq && seq != 0 {
		return place{after: seq, seq: seq}, true
	}
	if b.early != nil {
		if i := slices.IndexFunc(b.early.due, func(p place) bool { return p.seq == seq }); i >= 0 {
			return b.early.due[i], true
		}
	}
	return place{}, false
}

// before counts the jobs that may be called and come before a place.
func (b *backlog) before(p place) (n int) {
	byPlace := func(seq uint64, p place) int { return place{after: seq, seq: seq}.compare(p) }
	if b.first != 0 && byPlace(b.first, p) < 0 {
		n, _ = slices.BinarySearchFunc(b.more, p, byPlace)
		n++
	}
	if b.early != nil {
		i, _ := slices.BinarySearchFunc(b.early.due, p, place.compare)
		n += i
	}
	return n
}

// seqs yields all sequences.
func (b *backlog) seqs(yield func(seq uint64) bool) {
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
		if !yield(p.seq) {
			return
		}
	}
	for l := range b.early.all {
		if !yield(l.seq) {
			return
		}
	}
}

// due returns a copy that holds only the jobs that may be called. Removing jobs from the copy by pass does not change
// b.
func (b *backlog) due() backlog {
	due := backlog{first: b.first, more: b.more}
	if b.early != nil {
		due.early = &early{due: b.early.due}
	}
	return due
}

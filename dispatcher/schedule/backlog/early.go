package backlog

import (
	"cmp"
	"slices"

	"weir/bucket"
)

// A job may ask not to be called before a time. Until then it is early: it is in its key's bucket, and no job waits for
// it. From then on it is due, and has the place of a job that came at its due time: behind jobs that came before that
// time, ahead of jobs that came after. So it neither gains nor loses a place by coming early. The order is the same
// after a restart, because the stream says when each job came.

// early holds a key's waiting jobs that asked not to be called before a time, whether they are due or not. Few keys
// have any.
type early struct {
	runs [][]Appointment // not due yet, by time and sequence; each run is sorted and not empty
	size int
	due  []Place // the places of jobs whose time has come, in their order
}

// Appointment is a job that must not be called yet. The zero Appointment is no job's.
type Appointment struct {
	At  bucket.Micros
	Seq uint64
}

// LastAt returns an Appointment behind those of all jobs that are due at a time.
func LastAt(at bucket.Micros) Appointment { return Appointment{at, ^uint64(0)} }

func (l Appointment) compare(other Appointment) int {
	return cmp.Or(cmp.Compare(l.At, other.At), cmp.Compare(l.Seq, other.Seq))
}

// mostInRun bounds how many elements are moved when a job comes or goes. Jobs do not come in the order of their times,
// because producers choose the times.
const mostInRun = 512

// Place orders the jobs of a key: first by after, then by due time, then by their own sequence. after is the sequence
// behind which the job is placed. For most jobs it is the job's own sequence.
type Place struct {
	after uint64
	at    bucket.Micros // its due time; 0: it asked for no time
	Seq   uint64
}

// Compare returns a number below 0 if p comes before the other place, and a number above 0 if it comes behind it.
func (p Place) Compare(other Place) int {
	return cmp.Or(cmp.Compare(p.after, other.after), cmp.Compare(p.at, other.at), cmp.Compare(p.Seq, other.Seq))
}

// Move shifts the due time of a job.
func (p *Place) Move(by bucket.Micros) {
	if p.at != 0 {
		p.at += by
	}
}

// add adds a job that must not be called yet.
func (e *early) add(l Appointment) {
	e.size++
	if len(e.runs) == 0 {
		e.runs = [][]Appointment{{l}}
		return
	}
	i, _ := slices.BinarySearchFunc(e.runs, l, func(run []Appointment, l Appointment) int { return run[0].compare(l) })
	i = max(0, i-1) // the last run that begins before l
	j, _ := slices.BinarySearchFunc(e.runs[i], l, Appointment.compare)
	run := slices.Insert(e.runs[i], j, l)
	e.runs[i] = run
	if len(run) > mostInRun {
		e.runs[i] = slices.Clone(run[:len(run)/2])
		e.runs = slices.Insert(e.runs, i+1, slices.Clone(run[len(run)/2:]))
	}
}

// next returns when the first job is due, bucket.Never if there is none.
func (e *early) next() bucket.Micros {
	if e == nil || e.size == 0 {
		return bucket.Never
	}
	return e.runs[0][0].At
}

// release moves the jobs that are due at now to due. Their places are behind the sequence after. release returns how
// many jobs it moved.
func (e *early) release(now bucket.Micros, after uint64) (n int) {
	for e.next() <= now {
		l := e.runs[0][0]
		if e.runs[0] = e.runs[0][1:]; len(e.runs[0]) == 0 {
			e.runs = e.runs[1:]
		}
		e.size--
		n++
		e.due = append(e.due, Place{after, l.At, l.Seq})
	}
	return n
}

// take removes a sequence, whether it is due or not. It searches all jobs.
func (e *early) take(seq uint64) (at bucket.Micros, p Place, is State) {
	if i := slices.IndexFunc(e.due, func(p Place) bool { return p.Seq == seq }); i >= 0 {
		p = e.due[i]
		e.due = slices.Delete(e.due, i, i+1)
		return p.at, p, Due
	}
	for r, run := range e.runs {
		i := slices.IndexFunc(run, func(l Appointment) bool { return l.Seq == seq })
		if i < 0 {
			continue
		}
		at = run[i].At
		if e.runs[r] = slices.Delete(run, i, i+1); len(e.runs[r]) == 0 {
			e.runs = slices.Delete(e.runs, r, r+1)
		}
		e.size--
		return at, Place{after: seq, Seq: seq}, Early
	}
	return 0, Place{}, Absent
}

// State says how a job waits.
type State int8

// The states.
const (
	Absent State = iota // it does not wait
	Due                 // it may be called
	Early               // it must not be called yet
)

// before counts the jobs that are not due yet and come due before the appointment one.
func (e *early) before(one Appointment) (n int) {
	if e == nil {
		return 0
	}
	for _, run := range e.runs {
		if run[len(run)-1].compare(one) >= 0 {
			i, _ := slices.BinarySearchFunc(run, one, Appointment.compare)
			return n + i
		}
		n += len(run)
	}
	return n
}

// all yields the jobs that are not due yet, in the order in which they come due.
func (e *early) all(yield func(Appointment) bool) {
	if e == nil {
		return
	}
	for _, run := range e.runs {
		for _, l := range run {
			if !yield(l) {
				return
			}
		}
	}
}

// backward yields the jobs that come due before the appointment one, the latest first.
func (e *early) backward(one Appointment) func(yield func(Appointment) bool) {
	return func(yield func(Appointment) bool) {
		for r := len(e.runs) - 1; r >= 0; r-- {
			run := e.runs[r]
			i, _ := slices.BinarySearchFunc(run, one, Appointment.compare)
			for i--; i >= 0; i-- {
				if !yield(run[i]) {
					return
				}
			}
		}
	}
}

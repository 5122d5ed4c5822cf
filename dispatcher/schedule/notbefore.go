package schedule

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
	runs [][]appointment // not due yet, by time and sequence; each run is sorted and not empty
	size int
	due  []place // the places of jobs whose time has come, in their order
}

// appointment is a job that must not be called yet.
type appointment struct {
	at  bucket.Micros
	seq uint64
}

func (l appointment) compare(other appointment) int {
	return cmp.Or(cmp.Compare(l.at, other.at), cmp.Compare(l.seq, other.seq))
}

// mostInRun bounds how many elements are moved when a job comes or goes. Producers choose the times, so jobs come in
// any order of them.
const mostInRun = 512

// place orders the jobs of a key: first by after, then by due time, then by their own sequence. after is the sequence
// behind which the job is placed. For most jobs it is the job's own sequence.
type place struct {
	after uint64
	due   bucket.Micros // 0: it asked for no time
	seq   uint64
}

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.after, other.after), cmp.Compare(p.due, other.due), cmp.Compare(p.seq, other.seq))
}

// add adds a job that must not be called yet.
func (e *early) add(l appointment) {
	e.size++
	if len(e.runs) == 0 {
		e.runs = [][]appointment{{l}}
		return
	}
	i, _ := slices.BinarySearchFunc(e.runs, l, func(run []appointment, l appointment) int { return run[0].compare(l) })
	i = max(0, i-1) // the last run that begins before l
	j, _ := slices.BinarySearchFunc(e.runs[i], l, appointment.compare)
	run := slices.Insert(e.runs[i], j, l)
	e.runs[i] = run
	if len(run) > mostInRun {
		e.runs[i] = slices.Clone(run[:len(run)/2])
		e.runs = slices.Insert(e.runs, i+1, slices.Clone(run[len(run)/2:]))
	}
}

// next returns when the first job is due, Never if there is none.
func (e *early) next() bucket.Micros {
	if e == nil || e.size == 0 {
		return Never
	}
	return e.runs[0][0].at
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
		e.due = append(e.due, place{after, l.at, l.seq})
	}
	return n
}

// take removes a sequence, whether it is due or not. It searches all jobs.
func (e *early) take(seq uint64) (at bucket.Micros, p place, is taken) {
	if i := slices.IndexFunc(e.due, func(p place) bool { return p.seq == seq }); i >= 0 {
		p = e.due[i]
		e.due = slices.Delete(e.due, i, i+1)
		return p.due, p, wasDue
	}
	for r, run := range e.runs {
		i := slices.IndexFunc(run, func(l appointment) bool { return l.seq == seq })
		if i < 0 {
			continue
		}
		at = run[i].at
		if e.runs[r] = slices.Delete(run, i, i+1); len(e.runs[r]) == 0 {
			e.runs = slices.Delete(e.runs, r, r+1)
		}
		e.size--
		return at, place{after: seq, seq: seq}, wasEarly
	}
	return 0, place{}, notThere
}

// taken says from which list a job was removed.
type taken int8

const (
	notThere taken = iota
	wasDue
	wasEarly
)

// before counts the jobs that are not due yet and come due before the appointment one.
func (e *early) before(one appointment) (n int) {
	if e == nil {
		return 0
	}
	for _, run := range e.runs {
		if run[len(run)-1].compare(one) >= 0 {
			i, _ := slices.BinarySearchFunc(run, one, appointment.compare)
			return n + i
		}
		n += len(run)
	}
	return n
}

// all yields the jobs that are not due yet, in the order in which they come due.
func (e *early) all(yield func(appointment) bool) {
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

// Early returns how many of a queue's jobs are not due at now.
func (q *KeyQueue) Early(now bucket.Micros) int {
	return q.waits.notDue() - q.waits.earlyBefore(appointment{now, maxSeq})
}

const maxSeq = ^uint64(0)

// PushEarly adds a job of a priority that must not be called before notBefore, which is 0 if it may be called at once.
// came is when the job came.
func (s *Schedule) PushEarly(key string, seq uint64, p *Partition, of bucket.Priority, came, notBefore bucket.Micros) *KeyQueue {
	if notBefore <= came {
		q := s.Queue(key, p)
		s.release(q, came, seq-1) // these jobs were due when this one came
		return s.pushAs(key, seq, p, of)
	}
	if end := p.deadlines[seq]; end != 0 && end < notBefore {
		notBefore = end // the intake accepts no such job; it ends when its deadline passes
	}
	p.newest = max(p.newest, seq)
	q := s.Queue(key, p)
	s.classify(q, of)
	q.waits.of(of).addEarly(appointment{notBefore, seq})
	s.census.came(q)
	s.census.early++
	s.census.keep(q, q.Empty() && s.byKey[q.Key] == q)
	s.Touch(q)
	return q
}

// release lets the queue's early jobs be called that are due at now. Their places are behind the sequence after.
func (s *Schedule) release(q *KeyQueue, now bucket.Micros, after uint64) {
	for _, p := range q.waits.priorities() {
		if b := q.waits.of(p); b.early.next() <= now {
			q.waits.comes(p)
			n := b.release(now, after)
			s.census.early -= n
			s.comes(p, n)
		}
	}
}

// Delays reports whether jobs of the queue asked not to be called before a time. When the partition has been read, the
// schedule must look at such a queue: a job may be due although no later job has come to release it.
func (q *KeyQueue) Delays() bool { return q.waits.hasEarly() }

// nextDue returns when a queue's first early job is due, Never while the partition is still being read.
func (q *KeyQueue) nextDue() bucket.Micros {
	if q.Partition.Reading {
		return Never
	}
	return q.waits.firstDue()
}

// afterEarlier returns when a queue's early job should be called. eta is when it would be called without the jobs that
// come due before it. These are called one after the other at the key's own rate. The jobs that come due last decide,
// so afterEarlier begins with them, and looks at no more than about mostAppointments.
func (v View) afterEarlier(q *KeyQueue, own appointment, eta bucket.Micros) bucket.Micros {
	most, ahead := q.waits.earlyBefore(own), 1
	for l := range q.waits.earlyBackward(own) {
		ahead++
		eta = max(eta, v.s.policy.slot(q.Limits, 0, l.at, ahead))
		if ahead > mostAppointments || v.s.policy.slot(q.Limits, 0, l.at, most+1) <= eta {
			break
		}
	}
	return eta
}

// mostAppointments bounds the jobs that a forecast looks at.
const mostAppointments = 1024

// backward yields the jobs that come due before the appointment one, the latest first.
func (e *early) backward(one appointment) func(yield func(appointment) bool) {
	return func(yield func(appointment) bool) {
		for r := len(e.runs) - 1; r >= 0; r-- {
			run := e.runs[r]
			i, _ := slices.BinarySearchFunc(run, one, appointment.compare)
			for i--; i >= 0; i-- {
				if !yield(run[i]) {
					return
				}
			}
		}
	}
}

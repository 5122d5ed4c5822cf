package schedule

import (
	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
)

// Early returns how many of a queue's jobs are not due at now.
func (q *KeyQueue) Early(now bucket.Micros) int { return q.waits.NotDueAt(now) }

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
	q.waits.Of(of).AddEarly(backlog.Appointment{At: notBefore, Seq: seq})
	s.census.came(q)
	s.census.early++
	s.census.keep(q, q.Empty() && s.byKey[q.Key] == q)
	s.Touch(q)
	return q
}

// release lets the queue's early jobs be called that are due at now. Their places are behind the sequence after.
func (s *Schedule) release(q *KeyQueue, now bucket.Micros, after uint64) {
	for _, p := range q.waits.Priorities() {
		if n := q.waits.Release(p, now, after); n > 0 {
			s.census.early -= n
			s.comes(p, n)
		}
	}
}

// Delays reports whether jobs of the queue asked not to be called before a time. When the partition has been read, the
// schedule must look at such a queue: a job may be due although no later job has come to release it.
func (q *KeyQueue) Delays() bool { return q.waits.HasEarly() }

// nextDue returns when a queue's first early job is due, Never while the partition is still being read.
func (q *KeyQueue) nextDue() bucket.Micros {
	if q.Partition.Reading {
		return Never
	}
	return q.waits.FirstDue()
}

// afterEarlier returns when a queue's early job should be called. eta is when it would be called without the jobs that
// come due before it. These are called one after the other at the key's own rate. The jobs that come due last decide,
// so afterEarlier begins with them, and looks at no more than about backlog.MostAppointments.
func (v View) afterEarlier(q *KeyQueue, own backlog.Appointment, eta bucket.Micros) bucket.Micros {
	most, ahead := q.waits.EarlyBefore(own), 1
	for l := range q.waits.EarlyBackward(own) {
		ahead++
		eta = max(eta, v.s.policy.slot(q.Limits, 0, l.At, ahead))
		if ahead > backlog.MostAppointments || v.s.policy.slot(q.Limits, 0, l.At, most+1) <= eta {
			break
		}
	}
	return eta
}

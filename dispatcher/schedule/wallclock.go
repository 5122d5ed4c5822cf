package schedule

import (
	"time"

	"weir/bucket"
)

// Deadlines, and the times before which jobs must not be called, are times of the wall clock. The schedule keeps them
// as times of its own clock, which cannot be set. When the wall clock is set, it moves all of them. Their order stays
// the same.

// wallStep is by how much the wall clock must have been set before the schedule moves the times. A wall clock that is
// slewed thus moves them rarely: each move takes time for every waiting job.
const wallStep = time.Second

// FollowWall tells the schedule how far the wall clock is ahead of the schedule's clock.
func (s *Schedule) FollowWall(ahead bucket.Micros) {
	if s.ahead.Until(ahead).Abs() < wallStep {
		return
	}
	by := s.ahead - ahead
	s.ahead = ahead
	parts := map[*Partition]struct{}{}
	for _, q := range s.agenda.all {
		parts[q.Partition] = struct{}{}
		q.waits.Move(by)
		for j := range q.Near {
			j.move(by)
		}
		for j := range q.Polled {
			j.move(by)
		}
		s.Touch(q)
	}
	for p := range parts {
		for seq := range p.deadlines {
			p.deadlines[seq] += by
		}
	}
}

// Own returns what the schedule's clock says when the wall clock says at.
func (s *Schedule) Own(at bucket.Micros) bucket.Micros { return at - s.ahead }

// Wall returns what the wall clock says when the schedule's clock says at.
func (s *Schedule) Wall(at bucket.Micros) bucket.Micros { return at + s.ahead }

// move shifts a job's deadline and due time.
func (j *Job) move(by bucket.Micros) {
	if j.Deadline != 0 {
		j.Deadline += by
	}
	j.place.Move(by)
}

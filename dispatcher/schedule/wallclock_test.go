package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestDeadlinesFollowTheWallClock checks that a deadline passes, and a due time comes, when the wall clock says so: if it
// was set before the job came, and if it is set while the job waits.
func TestDeadlinesFollowTheWallClock(t *testing.T) {
	const hour, due = bucket.Micros(3600e6), 30 * time.Second
	for _, c := range []struct {
		what          string
		before, after bucket.Micros // how far the wall clock is ahead before the job comes, and afterwards
		passes        time.Duration // from when the job came until its time by the wall clock
	}{
		{"never set", 0, 0, due},
		{"set back before", -hour, -hour, due},
		{"set forward before", hour, hour, due},
		{"set forward since", 0, hour, 0},
		{"set back since", 0, -hour, due + time.Hour},
		{"set right since", hour, 0, due + time.Hour},
	} {
		for _, early := range []bool{true, false} {
			d := newDesk(fast(4))
			s, part := d.Schedule, d.part
			s.FollowWall(c.before)
			wall := someTime + c.before
			if at := s.Own(wall.Add(due)); early {
				s.PushEarly("k", 1, part, bucket.Normal, s.Own(wall), at)
			} else {
				part.Expect(1, at)
				s.Push("k", 1, part)
				s.Holds.Pause("k", Pause{})
			}
			s.FollowWall(c.after)
			done := func(now bucket.Micros) bool { fx := s.Step(now); return len(fx.Expire)+len(fx.Load) > 0 }
			if c.passes > 0 && done(someTime.Add(c.passes-5*time.Second)) {
				t.Errorf("%s, early %v: too soon", c.what, early)
			}
			if next := s.Next(someTime); c.passes > 0 && next > someTime.Add(c.passes) {
				t.Errorf("%s, early %v: the schedule looks again after %v", c.what, early, someTime.Until(next))
			}
			if !done(someTime.Add(c.passes)) {
				t.Errorf("%s, early %v: too late", c.what, early)
			}
		}
	}
}

// TestDeadlineOfAPolledJobFollowsTheWallClock checks that the deadline of a job that was polled while the wall clock was
// set passes when the wall clock says so.
func TestDeadlineOfAPolledJobFollowsTheWallClock(t *testing.T) {
	const hour = bucket.Micros(3600e6)
	s, part, run := polledSchedule(t)
	part.Expect(1, someTime.Add(time.Minute))
	s.Push("k", 1, part)
	j := run()[0]
	accept(s, j, false)
	s.FollowWall(-hour)
	s.EndPolled(j)
	if left := someTime.Until(j.Deadline); left != time.Minute+time.Hour {
		t.Errorf("its deadline passes after %v", left)
	}
}

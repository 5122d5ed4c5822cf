package dispatcher

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestLineThatIsGoneIsTouched: a line without jobs is let go of, and who still knows it may touch it: that a suspect's call has
// ended, for one. It takes no turn then, whatever holds the api.
func TestLineThatIsGoneIsTouched(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 1, Capacity: 10}}
	s := newSchedule(&Policy{Rules: rules}, pace{maxStaged: maxStaged, maxCalls: maxCalls}, func(string) bucket.Micros { return 0 })
	now, p := bucket.Micros(1_000_000_000), &Partition{open: true}
	s.policy = &Policy{Rules: rules}
	l := s.push("k", 1, p)
	job := l.extract(1)
	job.phase = settling
	s.finished(job)
	for range 10 {
		now = now.Add(time.Hour)
		s.step(now)
	}
	if s.lines["k"] != nil || l.tenant != nil {
		t.Fatal("an hour later the line without jobs is still there")
	}
	s.until = now.Add(time.Hour)
	s.touch(l)
	s.step(now)
	if s.blocked.size != 0 {
		t.Error("a line without jobs waits for its turn")
	}
}

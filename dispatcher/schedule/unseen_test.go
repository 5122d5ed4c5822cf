package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestNobodyOvertakesALostFirstCall checks that a job keeps its place in its key's order when its lost first
// call is repeated, while its record is stored and until then. An intent is stored before a call, so that first
// call may never have reached the api.
func TestNobodyOvertakesALostFirstCall(t *testing.T) {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, InFlight: 4, Capacity: 10}}
	s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls}, func(string) bucket.Micros { return 0 })
	s.policy = &Policy{Rules: rules}
	now, p := bucket.Micros(1_000_000_000), &Partition{Open: true}
	q := s.Push("k", 1, p)
	lost := s.Extract(q, 1)
	lost.Calls, lost.Unseen, lost.Phase = 1, true, settling
	s.Push("k", 2, p)
	staged := func() (seqs []uint64) {
		t.Helper()
		now = now.Add(time.Second)
		fx := s.Step(now)
		for _, job := range fx.Load {
			seqs = append(seqs, job.Seq)
		}
		return seqs
	}
	if got := staged(); len(got) != 0 {
		t.Fatalf("jobs %v were made ready while the lost call of the job before them was settled", got)
	}
	s.Rest(lost, now.Add(time.Hour))
	if got := staged(); len(got) != 0 {
		t.Fatalf("jobs %v overtook the one whose first call was lost, and which waits", got)
	}
	alone := &Job{Deaths: aloneFrom, Queue: q}
	s.suspects.call(alone)
	lost.Deaths, lost.NotBefore = aloneFrom, 1 // a suspect waits for its turn, and those behind it wait for it
	s.Touch(q)
	if got := staged(); len(got) != 0 {
		t.Fatalf("jobs %v overtook the one whose first call was lost, and which is a suspect", got)
	}
	s.suspects.clear(alone, &s.agenda)
	if got := staged(); len(got) == 0 || got[0] != 1 {
		t.Fatalf("jobs %v are made ready; want job 1 first", got)
	}
}

package schedule

import (
	"testing"
	"time"

	"weir/bucket"
)

// TestUnitsThatComeBackAreAskedFor checks that a job that a quota has put off until midnight asks again if units come
// back that were granted while it asked, whether they come back before its answer or after. It asks once, and not for
// units that had come back before it asked.
func TestUnitsThatComeBackAreAskedFor(t *testing.T) {
	const start = bucket.Micros(1_700_000_000_000_000)
	for name, c := range map[string]struct {
		back  time.Duration // when the store has heard of the units; the ask is sent at 1 s, and answered at 2 s
		again bool
	}{
		"before the ask":     {500 * time.Millisecond, false},
		"while it is asked":  {1500 * time.Millisecond, true},
		"after the answer":   {3 * time.Second, true},
		"long after":         {time.Hour, true},
		"after the midnight": {48 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			rules := bucket.Rules{
				Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 100, InFlight: 4},
				Shared: []bucket.Limit{{Name: "daily", Quota: &bucket.Quota{Count: 33, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}}},
			}
			s := New(&Policy{Rules: rules}, Pace{PrepareLead: 24 * time.Millisecond, ReserveAhead: MostAhead, GrantTTL: 4 * time.Millisecond, MaxStaged: MaxStaged, MaxCalls: MaxCalls},
				func(string) bucket.Micros { return 0 })
			now, returned := start, start.Add(c.back)
			asks := func() (asked Effects) { // steps until a job asks, or nothing is to be done
				for range 10 {
					fx := s.Step(now)
					for _, j := range fx.Load {
						j.Policy, j.Costs = s.policy, []int64{1}
						s.Loaded(j)
					}
					if len(fx.Asks) > 0 {
						return fx
					}
				}
				return Effects{}
			}
			s.Push("k", 1, &Partition{Open: true})
			now = start.Add(time.Second)
			if returned < now {
				s.UnitsCameBack(returned)
			}
			fx := asks()
			if len(fx.Asks) != 1 {
				t.Fatalf("%d asks of a job that may be called", len(fx.Asks))
			}
			sent := now
			now = start.Add(2 * time.Second)
			if returned > sent && returned < now {
				if s.UnitsCameBack(returned) {
					t.Error("it must ask again before any job was put off")
				}
			}
			out := s.Answer(&fx, Reply{Sent: sent, Came: now, Answers: []bucket.Answer{{Wait: bucket.Wait{Limit: "daily", Until: start.Add(24 * time.Hour)}}}})
			if fx := asks(); len(fx.Asks) != 0 {
				t.Fatal("a job asks again that was put off until midnight")
			}
			if returned > now {
				now = returned
				out.PutOff = s.UnitsCameBack(now)
			}
			if out.PutOff != c.again {
				t.Fatalf("it must ask again: %v, want %v", out.PutOff, c.again)
			}
			if !c.again {
				return
			}
			if s.UnitsCameBack(now) {
				t.Error("it must ask again twice for the same units")
			}
			s.AskAgain(s.Find("k"), now)
			if fx := asks(); len(fx.Asks) != 1 {
				t.Errorf("%d asks of a job that is to ask again", len(fx.Asks))
			}
		})
	}
}

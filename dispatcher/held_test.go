package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// TestHeldKeysStarveNobody: 300 keys are told to come back in an hour while their next jobs are ready; a key that is not
// held is called all the same.
func TestHeldKeysStarveNobody(t *testing.T) {
	now := bucket.Micros(1_700_000_000_000_000)
	rules := bucket.Rules{Jitter: 5 * time.Millisecond, Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 1}}
	store, err := bucket.NewMemory(rules, func() bucket.Micros { return now })
	if err != nil {
		t.Fatal(err)
	}
	s := newSchedule(&Policy{Rules: rules}, pace{lead: 24 * time.Millisecond, ahead: leastAhead, late: 4 * time.Millisecond, maxStaged: maxStaged, maxCalls: maxCalls}, func(string) bucket.Micros { return 0 })
	p := &Partition{open: true}
	started := map[string]int{}
	var running []*task
	run := func(d time.Duration) {
		for end := now.Add(d); now < end; now = now.Add(time.Millisecond) {
			for {
				fx := s.step(now)
				for _, x := range fx.load {
					x.policy = s.policy
					s.loaded(x)
				}
				for _, x := range fx.start {
					started[x.line.key]++
					x.calls++
					s.sent(x, now)
					running = append(running, x)
				}
				if len(fx.asks) > 0 {
					a, err := store.Reserve(t.Context(), fx.asks)
					s.answer(&fx, reply{sent: now, came: now, answers: a, err: err})
				}
				if s.next(now) > now {
					break
				}
			}
		}
	}
	for k := range 300 {
		s.push(fmt.Sprint("held", k), uint64(2*k+1), p)
		s.push(fmt.Sprint("held", k), uint64(2*k+2), p)
	}
	run(100 * time.Millisecond) // calls run; the next job of each key is ready
	for range 2 {
		for _, x := range running { // each key is told to come back in an hour
			s.ended(x)
			s.hold(x.line, now.Add(time.Hour), "429")
			s.rest(x, now.Add(time.Hour))
		}
		running = nil
		run(100 * time.Millisecond)
	}
	s.push("other", 10001, p)
	run(30 * time.Second)
	if started["other"] == 0 {
		t.Error("a key that is not held was not called")
	}
}

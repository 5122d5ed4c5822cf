package schedule

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
	"weir/ingest"
)

// tokenRules are rules with a rate in tokens, whose calls may tell that they took less than they had reserved.
func tokenRules() bucket.Rules {
	rate := bucket.Rate{Count: 200_000, Per: time.Minute, Burst: 20_000}
	return bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 50, Per: time.Second, Burst: 1}, Capacity: 10_000, InFlight: 100},
		Shared: []bucket.Limit{{Name: "tokens", Rate: &rate, Cost: ingest.FromHeader("Weir-Cost").SettledBy(ingest.Source{Header: "X-Tokens"})}},
		Jitter: time.Millisecond,
	}
}

// foreseeTokens runs a schedule whose calls reserve so many tokens and take so many.
func foreseeTokens(t *testing.T, call time.Duration, estimate, actual int64) *foreseen {
	t.Helper()
	f := foresee(t, call, tokenRules())
	f.estimate, f.actual = estimate, actual
	return f
}

// TestForecastBySettledCalls checks that forecasts count what calls took: a tenth of their estimates, all of them or
// five times as much, however long the calls hold their estimates.
func TestForecastBySettledCalls(t *testing.T) {
	for _, c := range []struct {
		name             string
		call             time.Duration
		estimate, actual int64
	}{
		{"a tenth", 50 * time.Millisecond, 3000, 300},
		{"a tenth, of long calls", 4 * time.Second, 3000, 300},
		{"right", 50 * time.Millisecond, 300, 300},
		{"five times", 50 * time.Millisecond, 300, 1500},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := foreseeTokens(t, c.call, c.estimate, c.actual)
			for i := range 200 {
				f.submit(fmt.Sprint("warm", i%10))
			}
			f.run(10 * time.Second)
			var seqs []uint64
			for i := range 300 {
				seqs = append(seqs, f.submit(fmt.Sprint("k", i%10)))
			}
			start := f.now
			for n := 0; n < 100 && len(f.began) < 500; n++ {
				f.run(5 * time.Second)
			}
			for _, seq := range seqs {
				began, ok := f.began[seq]
				took, said := start.Until(began), start.Until(f.said[seq])
				if slack := 2*c.call + 2*time.Second; !ok || said > took*3/2+slack || said < took/2-slack {
					t.Errorf("job %d: said to start in %s, started after %s (%v)", seq, said, took, ok)
				}
			}
		})
	}
}

// TestUseBySettledCalls checks that the shown use of a rate is what its calls took, and the estimate only for calls
// that run.
func TestUseBySettledCalls(t *testing.T) {
	f := foreseeTokens(t, time.Second, 3000, 300)
	for i := range 100 {
		f.submit(fmt.Sprint("k", i%10))
	}
	f.run(20 * time.Second)
	running, settled := int64(len(f.endAt)), int64(len(f.began)-len(f.endAt))
	use := f.s.At(f.now).Uses()
	if want := running*3000 + settled*300; len(use) != 1 || use[0].Used != want {
		t.Errorf("%+v used; %d calls run and %d took 300 each: want %d", use, running, settled, want)
	}
	f.run(5 * time.Second)
	if use := f.s.At(f.now).Uses(); len(f.endAt) == 0 && use[0].Used != int64(len(f.began))*300 {
		t.Errorf("%+v used of %d calls of 300", use, len(f.began))
	}
}

// TestShareBySettledCalls checks that a key's share counts what calls take.
func TestShareBySettledCalls(t *testing.T) {
	f := foreseeTokens(t, 50*time.Millisecond, 3000, 300)
	for range 400 {
		f.submit("k")
	}
	f.run(10 * time.Second)
	var d Demand
	v := f.s.At(f.now)
	v.AddTo(&d, f.s.Find("k"))
	if share := v.ShareOf("k", &d); share.PerSecond < 9 || share.PerSecond > 12 {
		t.Errorf("%+v, and 200000 tokens a minute are 11.1 calls of 300 a second", share)
	}
}

// TestSoonest checks that no call starts before the time by which deadlines are judged, whatever calls take. That time
// does not count calls that are not settled yet, and counts what settled calls took.
func TestSoonest(t *testing.T) {
	for _, actual := range []int64{0, 300, 3000, 9000} {
		f := foreseeTokens(t, time.Second, 3000, actual)
		soonest := map[uint64]bucket.Micros{}
		for i := range 100 {
			key, position := fmt.Sprint("k", i%5), 1
			if q := f.s.byKey[key]; q != nil {
				position += q.Depth()
			}
			at := f.s.At(f.now).Soonest(Place{Key: key, Position: position})
			soonest[f.submit(key)] = at
			f.run(20 * time.Millisecond)
		}
		for n := 0; n < 100 && len(f.began) < len(soonest); n++ {
			f.run(5 * time.Second)
		}
		for seq, at := range soonest {
			if began, ok := f.began[seq]; !ok || began < at {
				t.Errorf("calls take %d: job %d started %s before the soonest time (%v)", actual, seq, began.Until(at), ok)
			}
		}
	}
	f := foreseeTokens(t, 10*time.Second, 20_000, 300)
	for i := range 10 {
		f.submit(fmt.Sprint("k", i))
	}
	f.run(time.Second)
	v, p := f.s.At(f.now), Place{Key: "new", Position: 1, Others: 10, Keys: 10}
	if eta, soonest := f.now.Until(v.ETA(p)), f.now.Until(v.Soonest(p)); eta < 5*time.Second || soonest > 100*time.Millisecond {
		t.Errorf("nothing is settled: a job is said to start in %s, and in %s at best", eta, soonest)
	}
	f = foreseeTokens(t, 100*time.Millisecond, 20_000, 220_000)
	f.submit("k")
	f.run(time.Second)
	if soonest := f.now.Until(f.s.At(f.now).Soonest(p)); soonest < 60*time.Second || soonest > 70*time.Second {
		t.Errorf("220000 tokens at 200000 a minute are settled, and a job could start in %s at best", soonest)
	}
}

// TestSoonestIsTheSoonest checks that Soonest counts on units to come back that these limits have not counted: units of
// other processes' calls, and of calls that were granted before a reload.
func TestSoonestIsTheSoonest(t *testing.T) {
	rules := tokenRules()
	budget := bucket.Quota{Count: 20_000, Per: time.Hour, Window: bucket.Fixed}
	rules.Shared = append(rules.Shared, bucket.Limit{Name: "hourly", Quota: &budget, Cost: rules.Shared[0].Cost})
	for name, hold := range map[string]func(f *foreseen){
		"another process": func(f *foreseen) {
			f.s.grants = f.s.grants.Under(true)
			f.s.Shared = limits.NewShared(&f.s.policy.Rules, f.s.policy.Price, f.s.policy.Settles, f.s.grants)
			if _, err := f.store.Reserve(context.Background(), []bucket.Ask{{Key: "elsewhere", Limits: f.s.policy.Rules.Key, Costs: []int64{20_000, 20_000}, Want: 1}}); err != nil {
				t.Fatal(err)
			}
		},
		"a reload": func(f *foreseen) {
			f.submit("running")
			f.run(100 * time.Millisecond)
			f.s.Adopt(&Policy{Rules: f.s.policy.Rules})
			for q := range f.s.Queues() {
				f.s.Rebind(q, f.now)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := foresee(t, time.Minute, rules)
			f.estimate, f.actual = 20_000, 0
			hold(f)
			f.submit("waiting")
			f.run(100 * time.Millisecond)
			v, p := f.s.At(f.now), Place{Key: "new", Position: 1, Others: 2, Keys: 2}
			if eta, soonest := f.now.Until(v.ETA(p)), f.now.Until(v.Soonest(p)); eta < 5*time.Second || soonest > 100*time.Millisecond {
				t.Errorf("a call may settle for nothing: a job is said to start in %s, and in %s at best", eta, soonest)
			}
			f.run(2 * time.Minute)
			if f.s.grants.Hidden() != (name == "another process") {
				t.Error("a call that is settled still counts as one of former rules")
			}
		})
	}
}

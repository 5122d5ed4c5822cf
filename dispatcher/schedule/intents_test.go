package schedule

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// TestReadyOnlyForNearCalls checks that under a slow shared limit no more jobs are kept ready, each with an
// intent, than can start within LongWait, since a crash makes each of them unknown. The limit is still used up,
// and keys take turns.
func TestReadyOnlyForNearCalls(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, time.Second, 10 * time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			rate := bucket.Rate{Count: 1, Per: every, Burst: 1}
			f := foresee(t, time.Millisecond, bucket.Rules{
				Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4},
				Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
			})
			const keys, turns = 20, 3
			for range turns + 1 {
				for i := range keys {
					f.submit(fmt.Sprint("k", i))
				}
			}
			most, over := 1+int(limits.LongWait/every), 0
			for end := f.now.Add(keys * turns * every); f.now < end; {
				f.run(time.Millisecond)
				n := 0
				for q := range f.s.Queues() {
					n += q.Jobs.count(staging, ready, asking, granted)
				}
				if n > most {
					over++
				}
			}
			if over > 0 {
				t.Errorf("for %d ms more than %d jobs were ready", over, most)
			}
			if n := len(f.began); n < keys*turns-2 || n > keys*turns+1 {
				t.Errorf("%d calls began, want %d", n, keys*turns)
			}
			for q := range f.s.Queues() {
				if n := turns + 1 - q.Depth(); n < turns-1 || n > turns+1 {
					t.Errorf("%s had %d turns, others %d", q.Key, n, turns)
				}
			}
		})
	}
}

// TestIntentsCostNoSlots checks that keeping few jobs ready costs no call of a shared limit, however long it
// takes to make one ready, and however few keys share the limit.
func TestIntentsCostNoSlots(t *testing.T) {
	for _, load := range []time.Duration{time.Millisecond, 10 * time.Millisecond, 40 * time.Millisecond} {
		for _, every := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 200 * time.Millisecond, time.Second} {
			for _, keys := range []int{1, 2, 20} {
				rate := bucket.Rate{Count: 1, Per: every, Burst: 1}
				f := foresee(t, 10*time.Millisecond, bucket.Rules{
					Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1}, Capacity: 10000, InFlight: 64},
					Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
				})
				f.load = load
				const calls = 100
				for i := range 2 * calls {
					f.submit(fmt.Sprint("k", i%keys))
				}
				f.run(calls*every + 2*load)
				if n := len(f.began); n < calls*95/100 {
					t.Errorf("a slot every %s, %s to make a job ready, %d keys: %d calls, want %d", every, load, keys, n, calls)
				}
			}
		}
	}
}

// TestReadyForFewPermits checks that under a shared limit of calls in flight few jobs are kept ready while long
// calls run, and that permits do not wait.
func TestReadyForFewPermits(t *testing.T) {
	f := foresee(t, 2*time.Second, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 4},
		Shared: []bucket.Limit{{Name: "concurrent", InFlight: 2}},
	})
	for i := range 60 {
		f.submit(fmt.Sprint("k", i%20))
	}
	for range 20_000 {
		f.run(time.Millisecond)
		if n := f.s.Pipe.staged; n > 1 {
			t.Fatalf("%d jobs are ready for 2 permits of calls that take 2 s", n)
		}
	}
	if n := len(f.began); n != 20 {
		t.Errorf("%d calls began in 20 s, want 20", n)
	}
}

// TestReadyBehindLongCall checks that jobs that became ready behind their keys' calls, because these were
// expected to be short, keep no room from other keys, however long those calls take.
func TestReadyBehindLongCall(t *testing.T) {
	rate := bucket.Rate{Count: 10, Per: time.Second, Burst: 5}
	f := foresee(t, time.Minute, bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 1000, InFlight: 1},
		Shared: []bucket.Limit{{Name: "account", Rate: &rate}},
	})
	f.s.Pipe.callTime = 10 * time.Millisecond
	for i := range 10 {
		f.submit(fmt.Sprint("busy", i%5))
	}
	f.run(50 * time.Millisecond)
	for i := range 10 {
		f.submit(fmt.Sprint("other", i))
	}
	f.run(3 * time.Second)
	if n := len(f.began); n != 15 || f.s.Pipe.staged != 0 {
		t.Errorf("%d of 15 keys were called, and %d jobs are ready behind their calls", n, f.s.Pipe.staged)
	}
	made := f.made
	for i := range 50 {
		f.submit(fmt.Sprint("busy", i%5))
		f.run(time.Millisecond)
	}
	if f.made != made {
		t.Errorf("%d jobs were made ready behind calls that take longer than was thought", f.made-made)
	}
}

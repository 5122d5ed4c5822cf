package limits

import (
	"errors"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// TestEstimates lets producers estimate five times too much, right, and a fifth of what their calls take. It checks
// that no window is over by the vendor's own count, and that weir's bill equals the vendor's. TestEstimatesForAMinute
// is the same test at length.
func TestEstimates(t *testing.T) {
	t.Parallel()
	const producers = 16
	limit := bucket.Rate{Count: 6000, Per: 3 * time.Second, Burst: 300}
	for _, c := range []struct {
		weirtest.Tokens
		jobs int
	}{
		{weirtest.Tokens{What: "five times too high", Of: 5, In: 1}, 50},
		{weirtest.Tokens{What: "five times too high, learned", Of: 5, In: 1, Learn: "p99"}, 100},
		{weirtest.Tokens{What: "right", Of: 1, In: 1}, 200},
		{weirtest.Tokens{What: "five times too low", Of: 1, In: 5}, 240},
		{weirtest.Tokens{What: "five times too low, learned", Of: 1, In: 5, Learn: "p99"}, 240},
	} {
		t.Run(c.What, func(t *testing.T) {
			t.Parallel()
			c.Limit = limit
			r := weirtest.NewRig(t, fakeapi.Options{
				Vendor: fakeapi.OpenAI, Key: fakeapi.KeyFrom{Segment: -1},
				Latency: fakeapi.Latency{
					Shape: fakeapi.Uniform, Min: 300 * time.Millisecond, Mean: 400 * time.Millisecond, Seed: 1,
				},
			}, c.YAML())
			failed := make([]error, c.jobs) // by job
			var all sync.WaitGroup
			for p := range producers {
				all.Go(func() {
					for n := p; n < c.jobs; n += producers {
						_, failed[n] = r.NC.RequestMsg(c.Job(n, producers), weirtest.Patience)
					}
				})
			}
			await.Return(t, "the producers", all.Wait)
			if err := errors.Join(failed...); err != nil {
				t.Fatal(err)
			}
			r.Eventually("all results", func() bool { return r.Messages("WEIR_RESULTS") == c.jobs && r.Waiting("pay") == 0 })
			c.CheckWindows(t, r.Referee(), r.API.All())
			weirtest.CheckBill(t, r.Worker.NATSURL(), fakeapi.Bills(r.API.All()))
			if totals := r.API.Totals(); totals.Billed != int64(c.jobs) {
				t.Errorf("the vendor bills %d calls of %d", totals.Billed, c.jobs)
			}
		})
	}
}

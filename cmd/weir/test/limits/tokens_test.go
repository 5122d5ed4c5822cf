package limits

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/producer"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestEstimates lets producers estimate five times too much, right, and a fifth of what their calls take. It checks
// that no window is over by the vendor's own count, and that weir's bill equals the vendor's. TestEstimatesForAMinute
// is the same test at length.
func TestEstimates(t *testing.T) {
	t.Parallel()
	const producers = 16
	limit := bucket.Rate{Count: 6000, Per: 3 * time.Second, Burst: 300}
	calls := bucket.Rate{Count: 180, Per: 3 * time.Second, Burst: 20}
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
			c.Limit, c.Calls = limit, calls
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
			r.Eventually("all results", func() bool {
				return r.Store().Messages("WEIR_RESULTS") == c.jobs && r.Store().Waiting("pay") == 0
			})
			c.CheckWindows(t, r.Referee(), r.API.All())
			weirtest.CheckBill(t, r.Worker.NATSURL(), fakeapi.Bills(r.API.All()))
			if totals := r.API.Totals(); totals.Billed != int64(c.jobs) {
				t.Errorf("the vendor bills %d calls of %d", totals.Billed, c.jobs)
			}
		})
	}
}

// TestTokensOfAnAccount lets two language models on one account share a limit in tokens and a budget. The jobs of chat
// estimate five times too much, those of draft right. By the account's own count no window is over and the bill is
// within the budget, and weir's bill equals the account's.
func TestTokensOfAnAccount(t *testing.T) {
	t.Parallel()
	const jobs = 80 // of each api; together they cost more than the budget allows
	limit := bucket.Rate{Count: 3000, Per: 3 * time.Second, Burst: 300}
	budget := grammar.Money(45_000)
	loads := map[string]weirtest.Tokens{
		"chat": {What: "both", Of: 5, In: 1, Limit: limit}, "draft": {What: "both", Of: 1, In: 1, Limit: limit},
	}
	yaml := fmt.Sprintf(`
accounts:
  acme:
    limits:
      - {name: tokens, rate: %d/3s, burst: %d, cost: {from: header:Weir-Cost, settle: json:/usage/total_tokens}}
      - {name: spend, budget: %s/month, tz: %s, on_exhausted: dead_letter}
apis:`, limit.Count, limit.Burst, budget, machine.Noon())
	for api := range loads {
		yaml += `
  ` + api + `:
    url: %[1]s/` + api + `
    vendor: openai
    account: acme
    timeout: 20s
    jitter: 20ms
    price:
      - {each: 3, per: 1000000, from: header:X-Input, settle: usage:input_tokens}
      - {each: 15, per: 1000000, from: header:X-Output, settle: usage:output_tokens}
    bucket: {rate: 100/s, capacity: 500, in_flight: 2}
`
	}
	for where, rig := range accountRigs {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			r := rig(t, fakeapi.Options{
				Vendor: fakeapi.OpenAI, Key: fakeapi.KeyFrom{Segment: -1},
				Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: 50 * time.Millisecond, Mean: 100 * time.Millisecond, Seed: 1},
			}, yaml)
			var all []*nats.Msg
			for n := range jobs {
				for api, load := range loads {
					m := load.Job(n, 4)
					m.Subject = fmt.Sprintf("weir.jobs.%s.k%d", api, n%4)
					m.Header.Set("Nats-Msg-Id", fmt.Sprint(api, n))
					all = append(all, m)
				}
			}
			producer.FillTaken(t, r.NC, all)
			r.Eventually("empty queues", func() bool {
				return r.Store().Waiting("chat")+r.Store().Waiting("draft") == 0
			})
			arrivals := r.API.All()
			loads["draft"].CheckWindows(t, r.Referee(), arrivals)
			bill := fakeapi.Bills(arrivals)
			weirtest.CheckBill(t, r.Worker.NATSURL(), bill)
			t.Logf("%d calls of %d cost %s of %s", bill.Calls, len(all), grammar.Money(bill.Charged), budget)
			if bill.Charged > int64(budget) || bill.Charged < int64(budget)/2 {
				t.Errorf("the account bills %s, the budget is %s", grammar.Money(bill.Charged), budget)
			}
			results, letters := r.Store().Messages("WEIR_RESULTS"), r.Store().Messages("WEIR_DEAD")
			if results != bill.Calls || letters == 0 || results+letters != len(all) {
				t.Errorf("%d results and %d letters for %d jobs, and %d billed calls", results, letters, len(all), bill.Calls)
			}
			for api := range loads {
				if len(ofAPI(arrivals, api)) < 20 {
					t.Errorf("%d calls of %s: that proves nothing", len(ofAPI(arrivals, api)), api)
				}
			}
		})
	}
}

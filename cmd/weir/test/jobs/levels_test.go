package jobs

import (
	"fmt"
	"strings"
	"testing"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
)

const budgetYAML = `
apis:
  pay:
    url: %%s
    price: 0.30
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 50/s, capacity: 500}
    limits:
      - {name: spend, budget: %s/day, tz: %s, on_exhausted: hold}
`

// TestBudgetIsTold at half, at four fifths, and when what is left buys no call: once each, also over a restart.
func TestBudgetIsTold(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"memory", "redis"} {
		t.Run(where, func(t *testing.T) {
			noon := machine.Noon()
			yaml := fmt.Sprintf(budgetYAML, "10.00", noon)
			var r *weirtest.Rig
			if where == "redis" {
				r = weirtest.NewRedisRig(t, fakeapi.Options{}, yaml).Rig
			} else {
				r = weirtest.NewRig(t, fakeapi.Options{}, yaml)
			}
			submit := func(n int) {
				for range n {
					r.Producer().Submit("weir.jobs.pay.k", nil, nil)
				}
			}
			expect := func(want ...string) {
				t.Helper()
				r.Eventually(strings.Join(want, ", "), func() bool {
					return len(r.Store().BudgetEvents("pay")) >= len(want)
				})
				if got := fmt.Sprint(r.Store().BudgetEvents("pay")); got != fmt.Sprint(want) {
					t.Errorf("told %s, want %s", got, want)
				}
			}
			// lasts waits for holds that last. A slot that a busy machine misses is given back, and ends the hold until it is
			// taken again.
			lasts := func(holds int) {
				t.Helper()
				r.Eventually(fmt.Sprintf("%d holds that last", holds), func() bool {
					held, resumed := len(r.Store().Stored("WEIR_EVENTS", "weir.events.held.pay._")), len(r.Store().Stored("WEIR_EVENTS", "weir.events.resumed.pay._"))
					return held > 0 && held-resumed == holds
				})
			}
			submit(20) // 6.00
			r.AwaitCalls(20)
			expect("spend 50 of 10.00")
			submit(7) // 8.10
			r.AwaitCalls(27)
			expect("spend 50 of 10.00", "spend 80 of 10.00")
			r.Eventually("the metric", func() bool {
				return strings.Contains(r.HTTP().Get("/metrics"), `weir_limit_used_ratio{api="pay",limit="spend"} 0.81`)
			})
			r.Stop()
			r.Start()
			submit(10) // 0.10 is left after six more
			r.AwaitCalls(33)
			all := []string{"spend 50 of 10.00", "spend 80 of 10.00", "spend 100 of 10.00"}
			expect(all...)
			r.Gauge("weir_held", 1)
			lasts(1)
			r.Follow(fmt.Sprintf(budgetYAML, "20.00", noon))
			r.AwaitCalls(37) // 11.10
			expect(append(all, "spend 50 of 20.00")...)
			r.Gauge("weir_held", 0)
			lasts(0)
			r.Gauge("weir_spend_total", 3)
		})
	}
}

// TestShadowIsTold: what a limit would have held is a metric, and in show and verify. On a busy machine a call may miss
// its slot: it asks for another one, and counts again.
func TestShadowIsTold(t *testing.T) {
	t.Parallel()
	const yaml = `
apis:
  pay:
    url: %%s
    bucket: {rate: %s, capacity: 500}
    limits:
      - {name: maybe, quota: 5/3h, window: sliding, shadow: true}
      - {name: daily, quota: 100/day, tz: UTC}
`
	r := weirtest.NewRig(t, fakeapi.Options{}, fmt.Sprintf(yaml, "100/s"))
	for range 12 {
		r.Producer().Submit("weir.jobs.pay.k", nil, nil)
	}
	r.AwaitCalls(12)
	atLeast := func(least int, text, before string) bool {
		_, rest, _ := strings.Cut(text, before)
		var held int
		_, err := fmt.Sscan(rest, &held)
		return err == nil && held >= least
	}
	r.Eventually("the metric", func() bool {
		return atLeast(7, r.HTTP().Get("/metrics"), `weir_shadow_holds_total{api="pay",limit="maybe"} `)
	})
	r.Eventually("the records of all calls", func() bool { return len(r.Store().Ledger("pay", "k")) == 12 })
	found, code := r.CLI().Verify()
	if l := program.LimitFound(t, found["pay"], "maybe"); code != 0 || !l.Shadow || l.Verdict != bucket.Fail || l.Worst != 12 || l.Allowed != 5 {
		t.Errorf("verify: exit code %d, %+v", code, l)
	}
	r.Producer().Submit("weir.jobs.pay.slow", nil, nil)
	r.Follow(fmt.Sprintf(yaml, "1/h"))
	for range 3 {
		r.Producer().Submit("weir.jobs.pay.slow", nil, nil)
	}
	var shown string
	r.Eventually("what show says of the limits", func() bool {
		shown, _ = r.CLI().Run("show", "pay", "slow")
		return atLeast(8, shown, "would have held ")
	})
	for _, want := range []string{"only watches: would have held", "of 100 used until"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not say %q:\n%s", want, shown)
		}
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/limitstate"
)

// budgetEvents are the budget events of an api that are kept, in order: limit, threshold, amount.
func (r *rig) budgetEvents(api string) (told []string) {
	r.t.Helper()
	stream, err := r.js.Stream(r.t.Context(), "WEIR_EVENTS")
	if err != nil {
		r.t.Fatal(err)
	}
	for seq := uint64(1); seq <= stream.CachedInfo().State.LastSeq; seq++ {
		msg, err := stream.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		if !strings.HasPrefix(msg.Subject, "weir.events.budget."+api+".") {
			continue
		}
		var e struct {
			Type, Source string
			Data         limitstate.BudgetData
		}
		if err := json.Unmarshal(msg.Data, &e); err != nil || e.Type != "weir.budget.v1" || e.Source != "/weir/"+api {
			r.t.Fatalf("%s: %v", msg.Data, err)
		}
		spent, _ := config.ParseMoney(e.Data.Counted)
		budget, _ := config.ParseMoney(e.Data.Budget)
		if percent := int64(spent) * 100 / int64(budget); percent < int64(min(e.Data.Percent, 99)) {
			r.t.Errorf("%d %% told at %d %%: %s", e.Data.Percent, percent, msg.Data)
		}
		told = append(told, fmt.Sprintf("%s %d of %s", e.Data.Limit, e.Data.Percent, e.Data.Budget))
	}
	return told
}

const budgetYAML = `
apis:
  pay:
    url: %%s
    price: 0.30
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 50/s, capacity: 500}
    limits:
      - {name: spend, budget: %s/day, on_exhausted: hold}
`

// TestBudgetIsTold at half, at four fifths, and when what is left buys no call: once each, also over a restart.
func TestBudgetIsTold(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"memory", "redis"} {
		t.Run(where, func(t *testing.T) {
			yaml := fmt.Sprintf(budgetYAML, "10.00")
			var r *rig
			if where == "redis" {
				r = newRedisRig(t, fakeapi.Options{}, yaml).rig
			} else {
				r = newRig(t, fakeapi.Options{}, yaml)
			}
			submit := func(n int) {
				for range n {
					r.submit("weir.jobs.pay.k", nil, nil)
				}
			}
			expect := func(want ...string) {
				t.Helper()
				r.eventually(strings.Join(want, ", "), func() bool { return len(r.budgetEvents("pay")) >= len(want) })
				if got := fmt.Sprint(r.budgetEvents("pay")); got != fmt.Sprint(want) {
					t.Errorf("told %s, want %s", got, want)
				}
			}
			submit(20) // 6.00
			r.awaitCalls(20)
			expect("spend 50 of 10.00")
			submit(7) // 8.10
			r.awaitCalls(27)
			expect("spend 50 of 10.00", "spend 80 of 10.00")
			r.eventually("the metric", func() bool {
				return strings.Contains(r.get("/metrics"), `weir_limit_used_ratio{api="pay",limit="spend"} 0.81`)
			})
			r.stop()
			r.start()
			submit(10) // 0.10 is left after six more
			r.awaitCalls(33)
			all := []string{"spend 50 of 10.00", "spend 80 of 10.00", "spend 100 of 10.00"}
			expect(all...)
			r.gauge("weir_held", 1)
			r.holdEvents("weir.events.held.pay._")
			r.follow(fmt.Sprintf(budgetYAML, "20.00"))
			r.awaitCalls(37) // 11.10
			expect(append(all, "spend 50 of 20.00")...)
			r.gauge("weir_held", 0)
			r.holdEvents("weir.events.held.pay._", "weir.events.resumed.pay._")
			r.gauge("weir_spend_total", 3)
		})
	}
}

// TestShadowIsTold: what a limit would have held is a metric, and in show and verify.
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
	r := newRig(t, fakeapi.Options{}, fmt.Sprintf(yaml, "100/s"))
	for range 12 {
		r.submit("weir.jobs.pay.k", nil, nil)
	}
	r.awaitCalls(12)
	r.eventually("the metric", func() bool {
		return strings.Contains(r.get("/metrics"), `weir_shadow_holds_total{api="pay",limit="maybe"} 7`)
	})
	r.eventually("the records of all calls", func() bool { return len(r.ledger("pay", "k")) == 12 })
	found, code := r.verify()
	if l := limitFound(t, found["pay"], "maybe"); code != 0 || !l.Shadow || l.Verdict != bucket.Fail || l.Worst != 12 || l.Allowed != 5 {
		t.Errorf("verify: exit code %d, %+v", code, l)
	}
	r.submit("weir.jobs.pay.slow", nil, nil)
	r.follow(fmt.Sprintf(yaml, "1/h"))
	for range 3 {
		r.submit("weir.jobs.pay.slow", nil, nil)
	}
	var shown string
	r.eventually("what show says of the limits", func() bool {
		shown, _ = r.command("show", "pay", "slow")
		return strings.Contains(shown, "would have held 8")
	})
	for _, want := range []string{"only watches: would have held", "of 100 used until"} {
		if !strings.Contains(shown, want) {
			t.Errorf("show does not say %q:\n%s", want, shown)
		}
	}
}

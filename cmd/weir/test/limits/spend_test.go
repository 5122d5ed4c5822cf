package limits

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/ops/spend"
	"weir/cmd/weir/internal/ops/verify"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
)

// TestSpendIsTheSameEverywhere: every report of the spending shows the same number, with doubtful calls apart, over
// restarts and changes of the limits. A budget counts both. The metrics count from the start of their process.
func TestSpendIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	machine.AwaitDay(weirtest.Patience) // the status tells what was spent today
	const yaml = `
apis:
  pay:
    url: %s
    price: 0.40
    bucket: {rate: %s, capacity: 100}
    limits: [{name: spend, budget: 200.00/month}]
`
	api := weirtest.StartOrdered(t, map[string][]string{"odd": {"status=500"}, "bad": {"status=400"}, "busy": {"status=429", "status=200"}})
	r := weirtest.RigOn(t, api, fmt.Sprintf(yaml, api.URL(), "200/s"))
	call := func(jobs ...string) {
		before := r.Store().Messages("WEIR_CALLS")
		for _, job := range jobs {
			r.Producer().Pay(job, job)
		}
		r.Eventually("the calls to be recorded", func() bool {
			return r.Store().Messages("WEIR_CALLS") >= before+len(jobs) && r.Store().Waiting("pay") == 0
		})
	}
	say := func(into any, args ...string) {
		t.Helper()
		got := program.Command(t, []string{"WEIR_NATS_URL=" + r.Worker.NATSURL()}, args...)
		if got.Code != 0 {
			t.Fatalf("weir %s ended with %+v", strings.Join(args, " "), got)
		}
		if err := json.Unmarshal([]byte(got.Stdout), into); err != nil {
			t.Fatalf("weir %s: %v: %s", strings.Join(args, " "), err, got.Stdout)
		}
	}
	everywhere := func(spent, doubt, budget string, since ...string) {
		t.Helper()
		var account spend.Account
		r.Eventually("the budget's level", func() bool { // it is looked at once a second
			say(&account, "spend", "--json", "--since", "1d")
			return account.Budgets[0].Counted == budget
		})
		if b := account.Budgets[0]; account.Spent != spent || account.InDoubt != doubt || b.Spent != spent || b.InDoubt != doubt {
			t.Errorf("spend says %+v with the budget %+v, want %s and %s", account, b, spent, doubt)
		}
		var status struct {
			APIs []struct {
				Spent   string `json:"spent_today"`
				InDoubt string `json:"in_doubt_today"`
			} `json:"apis"`
		}
		say(&status, "status", "--json")
		if a := status.APIs[0]; a.Spent != spent || a.InDoubt != doubt {
			t.Errorf("status says %+v, want %s and %s", a, spent, doubt)
		}
		var v verify.Report
		if say(&v, append([]string{"verify", "--json"}, since...)...); v.BilledYes != spent || v.BilledUnknown != doubt {
			t.Errorf("verify %v says %s and %s, want %s and %s", since, v.BilledYes, v.BilledUnknown, spent, doubt)
		}
		got := program.Command(t, []string{"WEIR_NATS_URL=" + r.Worker.NATSURL()}, "status")
		if want := budget + " of 200.00 used"; !strings.Contains(got.Stdout, want) {
			t.Errorf("status does not say %q: %s", want, got.Stdout)
		}
	}
	call("one", "two", "three", "odd", "bad", "busy") // 429 and 400 are not billed
	everywhere("1.60", "0.40", "2.00")
	r.Gauge("weir_spend_total", 1.60)
	r.Gauge("weir_spend_in_doubt_total", 0.40)

	r.Stop()
	r.Start()
	call("four")
	everywhere("2.00", "0.40", "2.40")
	r.Gauge("weir_spend_total", 0.40)
	r.Gauge("weir_spend_in_doubt_total", 0)

	r.Follow(fmt.Sprintf(yaml, "%s", "100/s"))
	call("five")
	everywhere("2.40", "0.40", "2.80", "--since", "1d") // without it verify looks at what came since the change
}

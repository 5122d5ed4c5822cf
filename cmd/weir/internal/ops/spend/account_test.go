package spend

import (
	"slices"
	"testing"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestAccountsCountAllOfTheirAPIs checks that each api of an account reports what all apis of the account took from its
// limits, even if the question is about one api. An api's own limit of the same name counts only that api.
func TestAccountsCountAllOfTheirAPIs(t *testing.T) {
	c := configOf(t, `
accounts:
  acme: {limits: [{name: calls, quota: 10/day}, {name: spend, budget: 5/day}]}
apis:
  chat: {url: https://a, account: acme, price: 0.50, bucket: {rate: 1/s, capacity: 1}, limits: [{name: calls, quota: 10/day}, {name: spend, budget: 5/day}]}
  embed: {url: https://a, account: acme, price: 0.50, bucket: {rate: 1/s, capacity: 1}, limits: [{name: calls, quota: 10/day}, {name: spend, budget: 5/day}]}
`)
	noon := begun.Add(12 * time.Hour)
	var records []*ledger.Record
	sums := NewSums(1 << 30)
	for i := range 7 {
		at := noon.Add(time.Duration(i-10) * time.Minute)
		r := &ledger.Record{
			API: []string{"chat", "embed"}[i%2], Started: at, Planned: at, Stored: at, Sent: true, Price: "0.50", Billed: deadletter.BilledYes,
			Limits: []string{"calls", "spend", "acme/calls", "acme/spend"},
		}
		records = append(records, r)
		sums.Add(r)
	}
	sums.Complete()
	calls, money := map[string]int64{"chat": 4, "embed": 3}, map[string]string{"chat": "2.00", "embed": "1.50"}
	for api := range calls {
		of, _ := c.API(api)
		for _, l := range sums.Use(of, noon).Limits {
			want := map[string]int64{"calls": calls[api], "spend": 500_000 * calls[api], "acme/calls": 7, "acme/spend": 3_500_000}[l.Limit]
			if slices.Max(l.Level) != want {
				t.Errorf("of %s %d were used for %s, want %d", l.Limit, slices.Max(l.Level), api, want)
			}
		}
		for _, asked := range []string{"", api} {
			o := Options{API: asked, Now: noon, Config: c}
			for by, a := range map[string]*Account{"the sums": sums.Account(o), "the records": readAll(records, o, begun, begun, sums.grain)} {
				if asked != "" && a.Spent != money[api] {
					t.Errorf("by %s, %s spent %s, want %s", by, api, a.Spent, money[api])
				}
				for _, b := range a.BudgetsOf(api) {
					if want := map[string]string{"spend": money[api], "acme/spend": "3.50"}[b.Limit]; b.Spent != want {
						t.Errorf("by %s, for the api %q, %s of %s/%s was spent, want %s", by, asked, b.Spent, api, b.Limit, want)
					}
				}
			}
		}
	}
}

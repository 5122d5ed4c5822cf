package dispatcher

import (
	"testing"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestUnits: what a lost count is rebuilt from. What nobody wrote down counts as what every call takes.
func TestUnits(t *testing.T) {
	tokens := &bucket.Limit{Name: "tokens", Quota: &bucket.Quota{Count: 1000}}
	spend := &bucket.Limit{Name: "spend", Budget: &bucket.Budget{}}
	for name, c := range map[string]struct {
		record        ledger.Record
		tokens, spend int64
	}{
		"written down":      {ledger.Record{Sent: true, Price: "0.40", Limits: []string{"spend", "tokens"}, Costs: []int64{0, 7}}, 7, 0},
		"of other limits":   {ledger.Record{Sent: true, Price: "0.40", Limits: []string{"former"}, Costs: []int64{9}, Billed: deadletter.BilledYes}, 1, 400_000},
		"not known":         {ledger.Record{Sent: true, Price: "0.40", Limits: []string{"spend", "tokens"}, Billed: deadletter.BilledUnknown}, 1, 400_000},
		"free":              {ledger.Record{Sent: true, Price: "0.40", Billed: deadletter.NotBilled}, 1, 0},
		"never reached it":  {ledger.Record{Price: "0.40", Limits: []string{"tokens"}, Costs: []int64{7}, Billed: deadletter.NotBilled}, 0, 0},
		"price of no money": {ledger.Record{Sent: true, Price: "?", Billed: deadletter.BilledYes}, 1, 0},
	} {
		if got := c.record.Units(tokens); got != c.tokens {
			t.Errorf("%s: %d tokens, want %d", name, got, c.tokens)
		}
		if got := c.record.Units(spend); got != c.spend {
			t.Errorf("%s: %d of the budget, want %d", name, got, c.spend)
		}
	}
}

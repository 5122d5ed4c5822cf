package spend

import (
	"testing"
	"time"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestOperationIsOneCall checks that the cost of an operation beyond its call is added to the money, and is not a
// second call.
func TestOperationIsOneCall(t *testing.T) {
	a := &adder{Options: Options{By: ByAPI}, groups: map[groupName]*Group{}, account: &Account{}}
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	a.add(&ledger.Record{API: "pay", Started: now, Sent: true, Price: "0.50", Billed: deadletter.BilledYes, Outcome: ledger.Submitted})
	a.add(&ledger.Record{API: "pay", Started: now, Sent: true, Price: "0.25", Billed: deadletter.BilledYes, Outcome: ledger.Done, Polled: true, Final: true})
	if g := a.groups[groupName{api: "pay"}]; g.sum.n != 1 || g.sum.money.Spent != 750_000 {
		t.Errorf("%+v", g)
	}
}

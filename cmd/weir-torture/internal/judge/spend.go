package judge

import (
	"slices"

	"weir/cmd/weir-torture/internal/plan"
)

// judgeSpend compares the spending that weir reports with the ledger. weir must not report less, or a budget would be
// overspent. It may report more by the price of each call that was answered and not billed, and of each call that was
// under way when weir was killed and may never have arrived, once each. A kill while nothing was queued must add
// nothing.
func (e *Evidence) judgeSpend(r *Report) {
	if e.Spent == nil {
		return
	}
	r.Spent, r.Counted = *e.Spent, true
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		least, most := e.prices(a)
		if a.Billed {
			r.SpentLeast += least
		}
		r.SpentMost += most
	}
	if slices.ContainsFunc(e.Timeline, func(c plan.InForce) bool { return c.Terms.Gone }) {
		r.SpentLeast = 0 // a budget that is removed for a while does not count the calls meanwhile
	}
	silent := r.Unknown - r.UnknownCalled
	for _, k := range e.Kills {
		if k.What != Idle {
			silent += (len(e.Keys) + plan.LargeKeys + 2) * plan.FirstTerms(e.Options).InFlight
		}
	}
	for id, calls := range e.Ends.Calls {
		silent += max(0, calls-e.arrived(id)) // calls that the network lost
	}
	price := 0
	for _, c := range e.Timeline {
		price = max(price, c.Terms.Price)
	}
	r.SpentMost += silent * price
}

// arrived returns how many calls of a job reached the api.
func (e *Evidence) arrived(job string) int {
	if e.reached == nil {
		e.reached = map[string]int{}
		for _, a := range e.calls() {
			e.reached[JobOf(&a)]++
		}
	}
	return e.reached[job]
}

func cents(n int) float64 { return float64(n) / 100 }

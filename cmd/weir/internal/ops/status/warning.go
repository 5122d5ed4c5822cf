package status

import (
	"fmt"
	"slices"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher/schedule"
)

// warnings returns the budgets and quotas that are used up while jobs wait for them.
func (a *API) warnings() (found []Problem) {
	waiting := a.Jobs - a.InFlight
	if waiting <= 0 {
		return nil
	}
	for i := range a.Limits {
		l := &a.Limits[i]
		spent := slices.ContainsFunc(a.Holds, func(h schedule.HoldState) bool { return h.Budget == l.Limit })
		if !spent && !l.UsedUp() {
			continue
		}
		kind, what := "quota", "is used up"
		if l.Unit == limitstate.InMoney {
			kind, what = "budget", "is spent"
		}
		until := ""
		if l.Until != nil {
			until = " until " + cli.ClockTime(*l.Until)
		}
		found = append(found, Problem{
			What: fmt.Sprintf("api %s: the %s %s %s%s: %s %s", a.API, kind, cli.Visible(l.Limit), what, until, cli.Count(waiting, "job"), cli.Verb(waiting, "waits", "wait")),
			Fix:  fmt.Sprintf("wait, or raise the %s in the configuration; `weir spend` and `weir keys %s` say what uses it", kind, a.API),
		})
	}
	return found
}

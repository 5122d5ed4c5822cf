package status

import (
	"fmt"
	"slices"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher/schedule"
)

// longSilence is how long polls may report no progress before the silence is a warning.
const longSilence = 10 * time.Minute

// warnings returns a warning for each budget or quota that is used up while jobs wait for it. It also returns one for
// operations whose polls have reported no progress for longSilence.
func (a *API) warnings() (found []Problem) {
	waiting := a.Jobs - a.InFlight
	if o := a.Operations; o != nil {
		waiting -= o.UnderWay
		if silent := time.Duration(o.SilentMS) * time.Millisecond; silent >= longSilence {
			found = append(found, Problem{
				What: fmt.Sprintf("api %s: no poll has said for %s how its %s", a.API, cli.Brief(silent), cli.Count(o.UnderWay, "operation")+" "+cli.Verb(o.UnderWay, "stands", "stand")),
				Fix: fmt.Sprintf("look at the log of the replicas, and at apis.%s.operation in the configuration: its answers must explain what the api says; "+
					"the jobs become letters unknown when operation.poll.for has passed", a.API),
			})
		}
	}
	if waiting <= 0 {
		return found
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

// Thresholds of warnings about a callback. There is a warning if the receiver has accepted no post for callbackFails,
// if the oldest end is older than callbackLate although the receiver accepts posts, or if weir gave up an end less than
// callbackTold ago.
const (
	callbackFails = time.Minute
	callbackLate  = 15 * time.Minute
	callbackTold  = time.Hour
)

// callbackWarnings returns warnings about a callback that is behind or has given up ends. A callback is behind if its
// receiver accepts no post, or if posts are too slow.
func (a *API) callbackWarnings(now time.Time) (found []Problem) {
	c := a.Callback
	if c == nil {
		return nil
	}
	if c.GivenUp > 0 && now.Sub(c.GivenUpAt) < callbackTold {
		found = append(found, Problem{
			What: fmt.Sprintf("api %s: its callback has given up %s, the last at %s: %s",
				a.API, cli.Count(c.GivenUp, "end"), cli.ClockTime(c.GivenUpAt), cli.Visible(c.GivenUpWhy)),
			Fix: "look at weir's log for the first of them, and at the receiver; `weir results ls` and `weir dead ls` list what is still kept; this is shown for an hour",
		})
	}
	switch {
	case !c.Failing.IsZero() && now.Sub(c.Failing) >= callbackFails:
		found = append(found, Problem{
			What: fmt.Sprintf("api %s: its callback's receiver has accepted no post since %s: %s; %s",
				a.API, cli.ClockTime(c.Failing), cli.Visible(c.Why), notPosted(c)),
			Fix: fmt.Sprintf("mend the receiver, or change its address with `weir config apply`; `weir notify test %s` tries it",
				admin.CallbackName(a.API)),
		})
	case !c.Oldest.IsZero() && now.Sub(c.Oldest) >= callbackLate:
		found = append(found, Problem{
			What: fmt.Sprintf("api %s: its callback is %s behind: %s", a.API, cli.Brief(now.Sub(c.Oldest)), notPosted(c)),
			Fix:  fmt.Sprintf("raise apis.%s.callback.rate, or look why the receiver is slow", a.API),
		})
	}
	return found
}

// CallbackText says in a sentence where the ends of an api's jobs are posted, and how far that is behind.
func CallbackText(c *admin.CallbackStatus) string {
	text := cli.Visible(c.Receiver) + ": " + notPosted(c)
	if !c.Unknown && !c.Oldest.IsZero() {
		text += ", the oldest from " + cli.ClockTime(c.Oldest)
	}
	if !c.Failing.IsZero() {
		text += "; accepts no post since " + cli.ClockTime(c.Failing) + ": " + cli.Visible(c.Why)
	}
	if c.GivenUp > 0 {
		text += fmt.Sprintf("; %s given up, the last at %s: %s",
			cli.Count(c.GivenUp, "end"), cli.ClockTime(c.GivenUpAt), cli.Visible(c.GivenUpWhy))
	}
	return text
}

// notPosted says how many ends wait.
func notPosted(c *admin.CallbackStatus) string {
	switch {
	case c.Unknown:
		return "it is not known yet how many ends wait"
	case c.Behind == 0:
		return "no end waits"
	}
	return fmt.Sprintf("%s %s", cli.Count(c.Behind, "end"), cli.Verb(int(c.Behind), "waits", "wait"))
}

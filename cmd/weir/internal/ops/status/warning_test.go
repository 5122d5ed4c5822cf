package status

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/dispatcher"
	"weir/dispatcher/schedule"
)

// TestWarnings checks that a budget or quota that is used up while jobs wait is a warning and not a problem. There is
// no warning if it is not used up or no job waits, for a rate, and for a shadow limit.
func TestWarnings(t *testing.T) {
	until := time.Date(2030, 1, 2, 0, 0, 0, 0, time.UTC)
	budget := limitstate.LimitShown{Limit: "spend", Used: 199_950_000, Count: 200_000_000, Unit: limitstate.InMoney, Until: &until}
	quota := limitstate.LimitShown{Limit: "calls", Used: 10, Count: 10, Unit: limitstate.InUnits, Until: &until}
	shadow, rate := quota, quota
	shadow.Shadow, rate.PerMS = true, 1000
	spent := []schedule.HoldState{{Until: until, Why: "the budget spend is spent", Budget: "spend"}}
	for name, c := range map[string]struct {
		api  API
		want string
	}{
		"the budget buys no further call": {
			API{Jobs: 21, Limits: []limitstate.LimitShown{budget}, Holds: spent},
			"api pay: the budget spend is spent until 2030-01-02T00:00:00.000Z: 21 jobs wait",
		},
		"one job waits for a quota": {
			API{Jobs: 3, InFlight: 2, Limits: []limitstate.LimitShown{quota}},
			"api pay: the quota calls is used up until 2030-01-02T00:00:00.000Z: 1 job waits",
		},
		"some money is left":    {API{Jobs: 21, Limits: []limitstate.LimitShown{budget}}, ""},
		"no job waits":          {API{Jobs: 2, InFlight: 2, Limits: []limitstate.LimitShown{quota}}, ""},
		"a limit that watches":  {API{Jobs: 2, Limits: []limitstate.LimitShown{shadow}}, ""},
		"a rate that is in use": {API{Jobs: 2, Limits: []limitstate.LimitShown{rate}}, ""},
	} {
		c.api.API = "pay"
		s := &Status{Intakes: 1, APIs: []*API{&c.api}}
		s.judge()
		told := ""
		for _, w := range s.Warnings {
			told += w.What
		}
		if told != c.want || !s.Healthy {
			t.Errorf("%s: told is %q, healthy %v", name, told, s.Healthy)
		}
		if worst := Worst(s.Checks(Thresholds{})); fmt.Sprint(worst) != map[bool]string{true: "OK", false: "WARNING"}[c.want == ""] {
			t.Errorf("%s: the checks come to %s", name, worst)
		}
	}
}

// TestCallbackWarnings checks that a callback is a warning and not a problem while its receiver accepts no post, while
// it is far behind, and for an hour after it gave up an end. A short failure is no warning.
func TestCallbackWarnings(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, c := range map[string]struct {
		callback *admin.CallbackStatus
		want     string
	}{
		"there is none":      {nil, ""},
		"it is up to date":   {&admin.CallbackStatus{}, ""},
		"it has just failed": {&admin.CallbackStatus{Behind: 3, Failing: ago(time.Second), Why: "answered 503"}, ""},
		"it fails": {
			&admin.CallbackStatus{Behind: 3, Oldest: ago(time.Hour), Failing: ago(time.Hour), Why: "answered 503"},
			"api pay: its callback's receiver has accepted no post since 2030-01-02T11:00:00.000Z: answered 503; 3 ends wait",
		},
		"it is slow":             {&admin.CallbackStatus{Behind: 1, Oldest: ago(20 * time.Minute)}, "api pay: its callback is 20m behind: 1 end waits"},
		"it has posts under way": {&admin.CallbackStatus{Behind: 1, Oldest: ago(time.Minute)}, ""},
		"it gave some up": {
			&admin.CallbackStatus{GivenUp: 2, GivenUpAt: ago(30 * time.Minute), GivenUpWhy: "answered 422"},
			"api pay: its callback has given up 2 ends, the last at 2030-01-02T11:30:00.000Z: answered 422",
		},
		"it fails, and how many wait is not known": {
			&admin.CallbackStatus{Unknown: true, Behind: 3, Failing: ago(time.Hour), Why: "answered 503"},
			"api pay: its callback's receiver has accepted no post since 2030-01-02T11:00:00.000Z: answered 503; it is not known yet how many ends wait",
		},
		"it gave some up long ago": {&admin.CallbackStatus{GivenUp: 2, GivenUpAt: ago(2 * time.Hour), GivenUpWhy: "answered 422"}, ""},
	} {
		s := &Status{Intakes: 1, At: now, APIs: []*API{{API: "pay", Callback: c.callback}}}
		s.judge()
		told := ""
		for _, w := range s.Warnings {
			told += w.What
		}
		if told != c.want || !s.Healthy {
			t.Errorf("%s: told is %q, healthy %v", name, told, s.Healthy)
		}
	}
}

// TestCallbackText checks that the sentence about a callback says how many ends wait, or that this is not known yet.
func TestCallbackText(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	for want, c := range map[string]admin.CallbackStatus{
		"to: no end waits": {},
		"to: 2 ends wait, the oldest from 2030-01-02T12:00:00.000Z":                                      {Behind: 2, Oldest: at},
		"to: it is not known yet how many ends wait":                                                     {Unknown: true, Behind: 2, Oldest: at},
		"to: it is not known yet how many ends wait; accepts no post since 2030-01-02T12:00:00.000Z: no": {Unknown: true, Failing: at, Why: "no"},
	} {
		c.Receiver = "to"
		if text := CallbackText(&c); text != want {
			t.Errorf("%+v: %q, want %q", c, text, want)
		}
	}
}

// TestCallbackOfReplicas checks that the status shows what a replica reports that knows how far the callback has come.
func TestCallbackOfReplicas(t *testing.T) {
	t.Parallel()
	known, unknown := &admin.CallbackStatus{Behind: 2}, &admin.CallbackStatus{Unknown: true}
	for _, order := range [][]*admin.CallbackStatus{{unknown, known}, {known, unknown}, {unknown, nil, known}} {
		a := &API{}
		for _, c := range order {
			a.add(&admin.APIStatus{Callback: c}, "weir-0")
		}
		if a.Callback != known {
			t.Errorf("shown is %+v", a.Callback)
		}
	}
}

// TestChangedStreams checks that the fix mentions letters only if a queue was changed.
func TestChangedStreams(t *testing.T) {
	for stream, letters := range map[string]bool{"WEIR_pay_0": true, "WEIR_CALLS": false, "KV_weir_control": false} {
		var s Status
		s.changed(dispatcher.StreamChange{Stream: stream, What: "purged"})
		if got := strings.Contains(s.Problems[0].Fix, "weir dead ls"); got != letters {
			t.Errorf("%s: %+v", stream, s.Problems)
		}
	}
}

// TestAccountsAreSummed checks that each api of an account reports how much all apis of the account use of its rates
// and calls in flight. One store counts quotas for all, and an api's own limits count that api alone.
func TestAccountsAreSummed(t *testing.T) {
	limits := func(used int64) []limitstate.LimitShown {
		return []limitstate.LimitShown{
			{Limit: "acme/rate", Used: used, Count: 5, PerMS: 1000},
			{Limit: "acme/running", Used: used, Count: 5, Unit: limitstate.InCalls},
			{Limit: "acme/quota", Used: 4, Count: 5, Unit: limitstate.InUnits},
			{Limit: "rate", Used: used, Count: 5, PerMS: 1000},
		}
	}
	s := &Status{APIs: []*API{{API: "chat", Limits: limits(3)}, {API: "embed", Limits: limits(1)}}}
	s.sumAccounts()
	for i, own := range []int64{3, 1} {
		for j, want := range []int64{4, 4, 4, own} {
			if l := s.APIs[i].Limits[j]; l.Used != want {
				t.Errorf("%s: %d of %s are used, want %d", s.APIs[i].API, l.Used, l.Limit, want)
			}
		}
	}
}

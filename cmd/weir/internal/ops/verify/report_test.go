package verify

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/limitstate"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestSaysWhyItFailed checks the report on calls that came closer together than their rate allows although no window
// had too many. It says how late they were and what helps.
func TestSaysWhyItFailed(t *testing.T) {
	limit := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 100, Per: time.Second, Burst: 1, Counts: bucket.ByWindow}}
	for want, at := range map[string][]time.Duration{
		"account: no window had too many calls, but calls came up to 20ms later": {0, 30 * time.Millisecond, 30 * time.Millisecond, 30 * time.Millisecond},
		"": {0, 10 * time.Millisecond, 15 * time.Millisecond},
	} {
		c := bucket.NewChecking(bucket.Expectation{Limit: limit, Jitter: 5 * time.Millisecond})
		for _, at := range at {
			c.Add(bucket.Arrival{At: int64(at)})
		}
		var said strings.Builder
		if err := tellTotals(&said, []Report{{API: "pay", Limits: []LimitReport{limitOf(limit, c)}}}); err != nil {
			t.Fatal(err)
		}
		if got := said.String(); !strings.Contains(got, want) || want == "" && strings.Contains(got, "late") {
			t.Errorf("of calls at %v it says %q", at, got)
		}
	}
}

// TestVerdictsOfForgottenKeys checks that a call under a key that the api had forgotten since the job's first call is a
// second call, even if another call was made in between.
func TestVerdictsOfForgottenKeys(t *testing.T) {
	c, err := config.Parse(fmt.Appendf(nil, changing, "1/s", 1, "a", "1000/s", 1), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("pay")
	api.Idempotency.For = time.Hour
	begun := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for what, of := range map[string]struct {
		calls []time.Duration // start times
		want  bucket.Outcome
	}{
		"known":                       {[]time.Duration{0, 59 * time.Minute}, bucket.Pass},
		"forgotten":                   {[]time.Duration{0, time.Hour}, bucket.Fail},
		"forgotten since the first":   {[]time.Duration{0, 40 * time.Minute, 80 * time.Minute}, bucket.Fail},
		"known since the first again": {[]time.Duration{0, 20 * time.Minute, 40 * time.Minute}, bucket.Pass},
	} {
		r := newReplay(api, time.Time{}, Bounds{})
		for i, after := range of.calls {
			at := begun.Add(after)
			r.take(&ledger.Record{
				API: "pay", Key: "k", Job: "1", Seq: 1, Call: i + 1, Sent: true, Planned: at, Started: at, Ended: at, Outcome: "retry",
				Billed: deadletter.BilledUnknown, Idempotency: deadletter.KeyedSince("Idempotency-Key@0", at),
			})
		}
		r.check(math.MaxInt64)
		if v := r.verdict(); v.Verdict != of.want {
			t.Errorf("%s: %s, want %s: %+v", what, v.Verdict, of.want, v.Limits)
		}
	}
}

// TestVerdicts checks that calls count from their start and not from their end. A second call that the api could not
// recognize as the first one fails. Calls that were recorded too late to be checked prove nothing.
func TestVerdicts(t *testing.T) {
	c, err := config.Parse(fmt.Appendf(nil, changing, "1/s", 1, "a", "1000/s", 1), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("pay")
	begun := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	call := func(seq uint64, started, took time.Duration) *ledger.Record {
		at := begun.Add(started)
		return &ledger.Record{
			API: "pay", Key: "k", Job: fmt.Sprint(seq), Seq: seq, Call: 1, Sent: true, Planned: at,
			Started: at, Ended: at.Add(took), Outcome: ledger.Done, Billed: deadletter.BilledYes, Final: true, Idempotency: "Idempotency-Key@0",
		}
	}
	late := []*ledger.Record{call(1, time.Hour, 0), call(2, 2*time.Hour, 0), call(3, 0, 0)}
	again := func(key string) *ledger.Record {
		c := call(1, 5*time.Second, 0)
		c.Call, c.Idempotency = 2, key
		return c
	}
	pushedBack := call(1, 2*time.Second, 0)
	pushedBack.Call, pushedBack.Outcome, pushedBack.Final = 2, ledger.PushedBack, false
	for what, of := range map[string]struct {
		calls []*ledger.Record
		want  bucket.Outcome
	}{
		"steady":                          {[]*ledger.Record{call(1, 0, 0), call(2, 2*time.Second, 0)}, bucket.Pass},
		"together":                        {[]*ledger.Record{call(1, 0, 0), call(2, 100*time.Millisecond, 0)}, bucket.Fail},
		"steady, and they end together":   {[]*ledger.Record{call(1, 0, 2*time.Second), call(2, 2*time.Second, 0)}, bucket.Pass},
		"together, and they end apart":    {[]*ledger.Record{call(1, 0, 0), call(2, 100*time.Millisecond, 2*time.Second)}, bucket.Fail},
		"again under its key":             {[]*ledger.Record{call(1, 0, 0), again("Idempotency-Key@0")}, bucket.Pass},
		"again under another":             {[]*ledger.Record{call(1, 0, 0), again("Other-Key@0")}, bucket.Fail},
		"pushed back, then under another": {[]*ledger.Record{call(1, 0, 0), pushedBack, again("Other-Key@0")}, bucket.Fail},
		"recorded when others were long":  {late, bucket.Inconclusive},
	} {
		r := newReplay(api, time.Time{}, Bounds{})
		for _, c := range of.calls {
			r.take(c)
		}
		r.check(math.MaxInt64)
		if v := r.verdict(); v.Verdict != of.want {
			t.Errorf("%s: %s, want %s: %+v", what, v.Verdict, of.want, v.Limits)
		}
	}
}

// TestAccountCountsCallsThatNameIt checks that an account's limit is verified over the calls that it counted when they
// were made. These include calls of an api that has left the account since, and exclude calls that an api made before
// it joined.
func TestAccountCountsCallsThatNameIt(t *testing.T) {
	c, err := config.Parse([]byte(`
accounts:
  acme: {limits: [{name: hourly, quota: 10/h, window: sliding}]}
apis:
  chat: {account: acme, url: http://127.0.0.1:1/, idempotency: {header: Idempotency-Key}, bucket: {rate: 100/s, capacity: 10}}
  mail: {account: acme, url: http://127.0.0.1:1/, idempotency: {header: Idempotency-Key}, bucket: {rate: 100/s, capacity: 10}}
`), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("chat")
	begun := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for what, of := range map[string]struct {
		other string
		named bool
		want  bucket.Outcome
	}{
		"called before it came": {"mail", false, bucket.Pass},
		"called since it came":  {"mail", true, bucket.Fail},
		"called until it left":  {"search", true, bucket.Fail},
		"called after it left":  {"search", false, bucket.Pass},
	} {
		r := newReplay(api, time.Time{}, Bounds{})
		for i := range 14 {
			at := begun.Add(time.Duration(i) * time.Second)
			record := &ledger.Record{
				API: "chat", Key: "k", Job: fmt.Sprint(i), Seq: uint64(i + 1), Call: 1, Sent: true, Planned: at, Started: at, Ended: at, Outcome: ledger.Done,
				Billed: deadletter.BilledYes, Limits: []string{"acme/hourly"}, Costs: []int64{1},
			}
			if i%2 == 1 {
				if record.API = of.other; !of.named {
					record.Limits, record.Costs = nil, nil
				}
				if r.isBeside(record) {
					r.beside(record)
				}
				continue
			}
			r.take(record)
		}
		r.check(math.MaxInt64)
		if v := r.verdict(); v.Verdict != of.want {
			t.Errorf("%s: %s, want %s: %+v", what, v.Verdict, of.want, v.Limits)
		}
	}
}

const settling = `
accounts:
  acme: {limits: [{name: tokens, quota: %[1]d/h, window: sliding, cost: {from: 10, settle: json:/n}}]}
apis:
  chat:
    account: acme
    url: http://127.0.0.1:1/
    price: [{each: 1, from: 10, settle: json:/n}]
    bucket: {rate: 1000/s, burst: 100, capacity: 10}
    limits:
      - {name: own, quota: %[1]d/d, window: calendar, cost: {from: 10, settle: json:/n}}
      - {name: pace, rate: %[1]d/h, burst: %[1]d, counts: window, cost: {from: 10, settle: json:/n}}
      - {name: spend, budget: %[1]d.00/h, window: sliding}
      - {name: watched, quota: %[1]d/h, window: sliding, cost: {from: 10, settle: json:/n}, shadow: true}
  mail: {account: acme, url: http://127.0.0.1:1/, price: [{each: 1, from: 10, settle: json:/n}], bucket: {rate: 1000/s, burst: 100, capacity: 10}}
`

// settlingAPI returns an api whose own limits and whose account's limits let n units through.
func settlingAPI(t *testing.T, n int) *config.API {
	c, err := config.Parse(fmt.Appendf(nil, settling, n), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("chat")
	return api
}

// tokenCall is a call that reserved and took units of all limits.
type tokenCall struct {
	reserved, took int64
	of             string // the api, if it is not chat
	after          time.Duration
	ends           bool // the end of an operation; took is beyond its call
}

// record returns the call's record, with the limits in another order than the api's.
func (c *tokenCall) record(n int, begun time.Time) *ledger.Record {
	at := begun.Add(c.after + time.Duration(n)*time.Millisecond)
	names, money := []string{"spend", "acme/tokens", "watched", "pace", "own"}, 1
	if c.of != "" {
		names, money = []string{"acme/tokens"}, 0
	}
	units := func(n int64) (of []int64) {
		for i := range names {
			if of = append(of, n); i < money {
				of[i] *= 1e6
			}
		}
		return of
	}
	r := &ledger.Record{
		API: cmp.Or(c.of, "chat"), Key: "k", Job: fmt.Sprint(n), Seq: uint64(n + 1), Call: 1, Sent: true, Planned: at, Started: at,
		Ended: at.Add(time.Millisecond), Outcome: ledger.Done, Billed: deadletter.BilledYes, Final: true, Polled: c.ends,
		Limits: names, Costs: units(c.took), Price: ledger.Money(c.took * 1e6),
	}
	if c.took > c.reserved && !c.ends {
		r.Reserved = units(c.reserved)
	}
	return r
}

// TestSettlementsAreToldApart checks that a window fails only by what its calls had reserved. The report says apart how
// far a window went over because calls took more. This also holds for limits of an account, for budgets, and for calls
// from before a change of the limits. A shadow limit reserves nothing, so it is judged by what calls took.
func TestSettlementsAreToldApart(t *testing.T) {
	changed := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	const longBefore = -20 * time.Minute
	for _, c := range []struct {
		what   string
		was    int // what the limits let through before they let 100 through; 0: they were not changed
		calls  []tokenCall
		worst  int64 // reserved in one window
		beyond int64
		units  int64
	}{
		{what: "as reserved", calls: []tokenCall{{reserved: 50, took: 50}, {reserved: 50, took: 50}}, worst: 100, units: 100},
		{what: "less than reserved", calls: []tokenCall{{reserved: 90, took: 10}, {reserved: 90, took: 90}}, worst: 100, units: 100},
		{what: "more, and within the limit", calls: []tokenCall{{reserved: 10, took: 50}, {reserved: 10, took: 50}}, worst: 20, units: 100},
		{what: "over by settlements", calls: []tokenCall{{reserved: 50, took: 50}, {reserved: 50, took: 80}}, worst: 100, beyond: 30, units: 130},
		{what: "over by what was reserved", calls: []tokenCall{{reserved: 60, took: 60}, {reserved: 50, took: 50}}, worst: 110, units: 110},
		{what: "over by both", calls: []tokenCall{{reserved: 60, took: 60}, {reserved: 50, took: 80}}, worst: 110, beyond: 30, units: 140},
		{
			what:  "one window by settlements, a later one by what was reserved",
			calls: []tokenCall{{reserved: 50, took: 170}, {reserved: 60, took: 60, after: 2 * time.Hour}, {reserved: 45, took: 45, after: 2 * time.Hour}},
			worst: 105, beyond: 70, units: 275,
		},
		{what: "beyond of another window", calls: []tokenCall{{reserved: 10, took: 95}, {reserved: 10, took: 95, after: 2 * time.Hour}}, worst: 10, units: 190},
		{what: "another api of the account", calls: []tokenCall{{reserved: 50, took: 50}, {reserved: 50, took: 80, of: "mail"}}, worst: 100, beyond: 30, units: 130},
		{what: "another api over", calls: []tokenCall{{reserved: 50, took: 50}, {reserved: 60, took: 60, of: "mail"}}, worst: 110, units: 110},
		{what: "the end of an operation", calls: []tokenCall{{reserved: 90, took: 90}, {took: 25, ends: true}}, worst: 90, beyond: 15, units: 115},
		{what: "another api's operation", calls: []tokenCall{{reserved: 90, took: 90}, {took: 25, ends: true, of: "mail"}}, worst: 90, beyond: 15, units: 115},
		{
			what: "taken before a change", was: 200,
			calls: []tokenCall{{reserved: 40, took: 90, after: longBefore}, {reserved: 50, took: 50, after: time.Minute}}, worst: 90, beyond: 40, units: 50,
		},
		{
			what: "reserved before a change", was: 200,
			calls: []tokenCall{{reserved: 90, took: 90, after: longBefore}, {reserved: 50, took: 50, after: time.Minute}}, worst: 140, units: 50,
		},
		{
			what: "not followed yet", was: 200,
			calls: []tokenCall{{reserved: 90, took: 190, after: longBefore}, {reserved: 50, took: 50}}, units: 0,
		},
	} {
		r := newReplay(settlingAPI(t, 100), time.Time{}, Bounds{})
		if c.was > 0 {
			r.since, r.changed, r.account = changed, changed, bucket.NewAccount(r.api.Rules)
			r.former = newFormer(settlingAPI(t, c.was), r.api, changed)
			r.limit()
		}
		judged := []string{"acme/tokens", "own", "pace", "spend"}
		for i, call := range c.calls {
			if call.after > time.Hour {
				judged = slices.DeleteFunc(judged, func(of string) bool { return of == "own" }) // its period is longer
			}
			if call.of != "" {
				judged = []string{"acme/tokens"}
			}
			record := call.record(i, changed)
			if r.isBeside(record) {
				r.beside(record)
				continue
			}
			r.take(record)
		}
		r.check(math.MaxInt64)
		want, v := bucket.Pass, r.verdict()
		if c.worst > 100 {
			want = bucket.Fail
		}
		for _, l := range v.Limits {
			scale := int64(1)
			if l.Limit == "spend" {
				scale = 1e6
			}
			if slices.Contains(judged, l.Limit) && (l.Verdict != want || l.Worst != c.worst*scale || l.Beyond != c.beyond*scale || l.Units != c.units*scale) {
				t.Errorf("%s: %+v, want %s by %d in the worst window, and %d beyond, of %d", c.what, l, want, c.worst, c.beyond, c.units)
			}
		}
		if v.Verdict != want {
			t.Errorf("%s: %s", c.what, v.Verdict)
		}
	}
}

// TestWatchedLimitsCountWhatCallsTook checks that a shadow limit is judged by what calls took, because it would have
// held later calls for that.
func TestWatchedLimitsCountWhatCallsTook(t *testing.T) {
	r := newReplay(settlingAPI(t, 100), time.Time{}, Bounds{})
	for i, call := range []tokenCall{{reserved: 10, took: 95}, {reserved: 10, took: 10}} {
		r.take(call.record(i, time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)))
	}
	r.check(math.MaxInt64)
	v := r.verdict()
	watched := v.Limits[slices.IndexFunc(v.Limits, func(l LimitReport) bool { return l.Limit == "watched" })]
	if v.Verdict != bucket.Pass || watched.Verdict != bucket.Fail || watched.Worst != 105 || watched.Beyond != 0 {
		t.Errorf("%s: %+v", v.Verdict, watched)
	}
}

// TestSaysWhatSettlementsTook checks that the report on a limit says how far a window went over because of settlements.
func TestSaysWhatSettlementsTook(t *testing.T) {
	var said strings.Builder
	limits := []LimitReport{
		{Limit: "tokens", Allowed: 100, Unit: limitstate.InUnits, Per: "per 1m", Beyond: 30},
		{Limit: "spend", Allowed: 200e6, Unit: limitstate.InMoney, Per: "per day", Beyond: 1.5e6},
		{Limit: "calls", Allowed: 5, Unit: limitstate.InUnits, Per: "per 1m"},
	}
	if err := tellTotals(&said, []Report{{API: "pay", Limits: limits}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n  tokens: calls took more than they had reserved: up to 30 over 100 per 1m\n", "\n  spend: calls took more than they had reserved: up to 1.50 over 200.00 per day\n"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q lacks %q", said.String(), want)
		}
	}
	if strings.Contains(said.String(), "calls: calls") {
		t.Errorf("%q", said.String())
	}
}

package verify

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// TestSaysWhyItFailed: where no window had too many calls, and they came nearer to each other than their rate has them, the report says by how
// much they were late and what helps.
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

// TestVerdictsOfForgottenKeys: a call under a key that the api had forgotten since the job's first call is a second
// one, even if another call was made in between.
func TestVerdictsOfForgottenKeys(t *testing.T) {
	c, err := config.Parse(fmt.Appendf(nil, changing, "1/s", 1, "a", "1000/s", 1), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	api, _ := c.API("pay")
	api.Idempotency.For = time.Hour
	begun := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	for what, of := range map[string]struct {
		calls []time.Duration // when they began
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

// TestVerdicts: calls count from when they started, not from when they ended; a second call that the api could not
// take for the first fails, and calls that were recorded too late to be checked prove nothing.
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
	for what, of := range map[string]struct {
		calls []*ledger.Record
		want  bucket.Outcome
	}{
		"steady":                         {[]*ledger.Record{call(1, 0, 0), call(2, 2*time.Second, 0)}, bucket.Pass},
		"together":                       {[]*ledger.Record{call(1, 0, 0), call(2, 100*time.Millisecond, 0)}, bucket.Fail},
		"steady, and they end together":  {[]*ledger.Record{call(1, 0, 2*time.Second), call(2, 2*time.Second, 0)}, bucket.Pass},
		"together, and they end apart":   {[]*ledger.Record{call(1, 0, 0), call(2, 100*time.Millisecond, 2*time.Second)}, bucket.Fail},
		"again under its key":            {[]*ledger.Record{call(1, 0, 0), again("Idempotency-Key@0")}, bucket.Pass},
		"again under another":            {[]*ledger.Record{call(1, 0, 0), again("Other-Key@0")}, bucket.Fail},
		"recorded when others were long": {late, bucket.Inconclusive},
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
// were made. Calls of an api that has left since are among them. Calls that an api made before it came are not.
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

package verify

import (
	"fmt"
	"math"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

const changing = `
apis:
  pay:
    url: "http://127.0.0.1/x"
    timeout: 1s
    jitter: 5ms
    idempotency: {header: Idempotency-Key}
    bucket: {rate: %s, burst: %d, counts: window, capacity: 1000}
    limits:
      - {name: %s, rate: %s, burst: %d, counts: window}
`

// TestWindowsAcrossAChange checks that a window across a change of the limits includes the calls from before, and that
// calls just after may still obey the former limits.
func TestWindowsAcrossAChange(t *testing.T) {
	changed := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	api := func(rate string, burst int, name, shared string, together int) *config.API {
		c, err := config.Parse(fmt.Appendf(nil, changing, rate, burst, name, shared, together), config.Options{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := c.API("pay")
		return a
	}
	loose := func(name string, burst int) *config.API { return api("1000/s", 1, name, "10/10s", burst) }
	every := func(from, to, step time.Duration) (at []time.Duration) {
		for ; from < to; from += step {
			at = append(at, from)
		}
		return at
	}
	together := func(from time.Duration, n int) []time.Duration {
		return every(from, from+time.Duration(n)*time.Millisecond, time.Millisecond)
	}
	for _, c := range []struct {
		name     string
		was, now *config.API
		calls    []time.Duration // after the change
		want     bucket.Outcome
	}{
		{"a burst after a steady pace", loose("a", 1), loose("a", 10), append(every(-10*time.Second, 0, time.Second), together(3*time.Second, 9)...), bucket.Fail},
		{"a burst at the very change", loose("a", 1), loose("a", 10), append(every(-10*time.Second, 0, time.Second), together(0, 9)...), bucket.Fail},
		{"a renamed limit", loose("a", 10), loose("b", 10), append(together(-time.Second, 10), together(0, 10)...), bucket.Fail},
		{
			"the same under a key's own rate", api("10/10s", 1, "a", "1000/s", 1), api("10/10s", 10, "a", "1000/s", 1),
			append(every(-10*time.Second, 0, time.Second), together(0, 9)...), bucket.Fail,
		},
		{"what a lowered limit had let pass", api("1000/s", 1, "a", "100/10s", 50), loose("a", 10), append(together(-time.Second, 50), 10*time.Second), bucket.Pass},
		{"a replica that has not followed", api("1000/s", 1, "a", "100/10s", 50), loose("a", 10), append(together(0, 50), 11*time.Second), bucket.Pass},
		{"a lowered limit that does not hold", api("1000/s", 1, "a", "100/10s", 50), loose("a", 10), append(together(-time.Second, 50), 3*time.Second), bucket.Fail},
	} {
		r := newReplay(c.now, changed, Bounds{})
		r.changed, r.account, r.former = changed, bucket.NewAccount(c.now.Rules), newFormer(c.was, c.now, changed)
		r.limit()
		for i, after := range c.calls {
			at := changed.Add(after)
			r.take(&ledger.Record{
				API: "pay", Key: "k", Job: fmt.Sprint(i), Seq: uint64(i + 1), Sent: true, Started: at, Planned: at, Ended: at.Add(time.Millisecond),
				Outcome: ledger.Done, Billed: deadletter.NotBilled, Final: true,
			})
		}
		r.check(math.MaxInt64)
		if v := r.verdict(); v.Verdict != c.want {
			t.Errorf("%s: %s, want %s: %+v", c.name, v.Verdict, c.want, v.Limits)
		}
	}
}

// TestPackBeforeAChangeCountsOnce checks that the records of a pack's jobs are one call, even before a change of the
// limits.
func TestPackBeforeAChangeCountsOnce(t *testing.T) {
	changed := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	c, err := config.Parse(fmt.Appendf(nil, changing, "1000/s", 1, "a", "10/10s", 10), config.Options{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := c.API("pay")
	r := newReplay(a, changed, Bounds{})
	r.changed, r.account, r.former = changed, bucket.NewAccount(a.Rules), newFormer(a, a, changed)
	r.limit()
	seq := uint64(0)
	for _, after := range []time.Duration{-time.Second, time.Second} {
		for n := range 5 {
			at := changed.Add(after + time.Duration(n)*time.Millisecond)
			for place := range 10 {
				seq++
				r.take(&ledger.Record{
					API: "pay", Key: "k", Job: fmt.Sprint(seq), Seq: seq, Sent: true, Started: at, Planned: at, Ended: at.Add(time.Millisecond),
					Outcome: ledger.Done, Billed: deadletter.BilledYes, Final: true, Pack: &queue.Pack{ID: fmt.Sprint(at), Place: place, Of: 10},
				})
			}
		}
	}
	r.check(math.MaxInt64)
	if v := r.verdict(); v.Verdict != bucket.Pass {
		t.Errorf("%s: %+v", v.Verdict, v.Limits)
	}
}

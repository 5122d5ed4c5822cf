package main

import (
	"fmt"
	"testing"
	"time"
)

// TestRestartKeepsInterval stops and starts a worker between two calls of a key. By its own ledger the second was never
// planned before the interval had passed.
func TestRestartKeepsInterval(t *testing.T) {
	t.Parallel()
	for kind, line := range map[string]string{"idempotent": "idempotency: {header: Idempotency-Key}", "not idempotent": "timeout: 5s"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			api := startOrdered(t, nil)
			r := rigOn(t, api, fmt.Sprintf("apis: {pay: {url: %q, %s, bucket: {rate: 1/3s, capacity: 9}}}", api.URL(), line))
			r.pay("slow", "first")
			r.ended("pay", "slow", 1)
			r.pay("slow", "waits")
			r.stop()
			r.start()
			r.pay("slow", "comes")
			r.ended("pay", "slow", 3)
			ledger := r.ledger("pay", "slow")
			for i := 1; i < len(ledger); i++ {
				if d := ledger[i].Planned.Sub(ledger[i-1].Planned); d < 3*time.Second {
					t.Errorf("call %d was planned %v after the one before", i+1, d)
				}
			}
			if len(ledger) != 3 || len(r.api.All()) != 3 {
				t.Errorf("%d records of %d calls", len(ledger), len(r.api.All()))
			}
		})
	}
}

// TestRestartKeepsLongInterval is the same for a key that is called so seldom that the ledger's end says nothing of it.
func TestRestartKeepsLongInterval(t *testing.T) {
	t.Parallel()
	api := startOrdered(t, nil)
	r := rigOn(t, api, fmt.Sprintf(`
dedupe: 1s
apis:
  pay: {url: %s, bucket: {rate: 2/24h, burst: 2, capacity: 9}}
`, api.URL()))
	r.pay("seldom", "first")
	r.pay("seldom", "second")
	r.ended("pay", "seldom", 2)
	r.pay("seldom", "waits")
	r.stop()
	r.start()
	r.pay("other", "other")
	r.ended("pay", "other", 1)
	r.pay("seldom", "comes")
	r.pay("another", "another")
	r.ended("pay", "another", 1)
	if n := len(r.api.Arrivals("seldom")); n != 2 || r.depth("pay", "seldom") != 2 {
		t.Errorf("%d calls of a key that may be called twice a day", n)
	}
}

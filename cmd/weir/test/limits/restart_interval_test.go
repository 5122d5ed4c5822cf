package limits

import (
	"fmt"
	"testing"
	"time"

	"weir/cmd/weir/weirtest"
)

// TestRestartKeepsInterval stops and starts a worker between two calls of a key. By its own ledger the second was never
// planned before the interval had passed.
func TestRestartKeepsInterval(t *testing.T) {
	t.Parallel()
	for kind, line := range map[string]string{"idempotent": "idempotency: {header: Idempotency-Key}", "not idempotent": "timeout: 5s"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			api := weirtest.StartOrdered(t, nil)
			r := weirtest.RigOn(t, api, fmt.Sprintf("apis: {pay: {url: %q, %s, bucket: {rate: 1/3s, capacity: 9}}}", api.URL(), line))
			r.Producer().Pay("slow", "first")
			r.Store().Ended("pay", "slow", 1)
			r.Producer().Pay("slow", "waits")
			r.Stop()
			r.Start()
			r.Producer().Pay("slow", "comes")
			r.Store().Ended("pay", "slow", 3)
			ledger := r.Store().Ledger("pay", "slow")
			for i := 1; i < len(ledger); i++ {
				if d := ledger[i].Planned.Sub(ledger[i-1].Planned); d < 3*time.Second {
					t.Errorf("call %d was planned %v after the one before", i+1, d)
				}
			}
			if len(ledger) != 3 || len(r.API.All()) != 3 {
				t.Errorf("%d records of %d calls", len(ledger), len(r.API.All()))
			}
		})
	}
}

// TestRestartKeepsLongInterval is the same for a key that is called so seldom that the ledger's end says nothing of it.
func TestRestartKeepsLongInterval(t *testing.T) {
	t.Parallel()
	api := weirtest.StartOrdered(t, nil)
	r := weirtest.RigOn(t, api, fmt.Sprintf(`
dedupe: 1s
apis:
  pay: {url: %s, bucket: {rate: 2/24h, burst: 2, capacity: 9}}
`, api.URL()))
	r.Producer().Pay("seldom", "first")
	r.Producer().Pay("seldom", "second")
	r.Store().Ended("pay", "seldom", 2)
	r.Producer().Pay("seldom", "waits")
	r.Stop()
	r.Start()
	r.Producer().Pay("other", "other")
	r.Store().Ended("pay", "other", 1)
	r.Producer().Pay("seldom", "comes")
	r.Producer().Pay("another", "another")
	r.Store().Ended("pay", "another", 1)
	if n := len(r.API.Arrivals("seldom")); n != 2 || r.Store().Depth("pay", "seldom") != 2 {
		t.Errorf("%d calls of a key that may be called twice a day", n)
	}
}

package replicas

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/servers"
)

// TestLimitsOfEachReplica lets replicas call with limits of their own, with Redis beside limits that they share, and
// without. Each keeps its own limits, all together the shared ones, and `weir verify` finds both.
func TestLimitsOfEachReplica(t *testing.T) {
	t.Parallel()
	const own = "    limits:\n      - {name: address, rate: 20/s, per: replica}\n      - {name: sockets, in_flight: 2, per: replica}\n"
	for what, shared := range map[string]string{"alone": "", "with Redis": "      - {name: account, rate: 30/s}\n"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url, env := servers.OneServer(t), []string(nil)
			if shared != "" {
				env = append(env, "WEIR_REDIS_URL=redis://"+servers.StartRedis(t).Addr)
			}
			r := weirtest.NewReplicas(t, url, 2, fmt.Sprintf(weirtest.ReplicaAPI, "idempotency: {header: Idempotency-Key}")+own+shared, env...)
			r.UnderLoad(16, 100*time.Millisecond, func(ctx context.Context) {
				r.AwaitCalls(ctx, 150)
				// On a busy machine one replica may be late.
				for began := time.Now(); len(r.CallsBy()) < 2 && time.Since(began) < weirtest.Patience; {
					r.AwaitCalls(ctx, 20)
				}
				status := program.Command(t, []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}, "status")
				for _, want := range []string{"of 20 used in the last 1s at replica-", "of 2 calls running at replica-"} {
					if !strings.Contains(status.Stdout, want) {
						t.Errorf("weir status does not say %q: %s%s", want, status.Stdout, status.Stderr)
					}
				}
			})
			r.Judge("idempotency")
			calls := map[string][]bucket.Arrival{}
			for _, c := range r.Records() {
				if c.Sent {
					calls[c.Instance] = append(calls[c.Instance], bucket.Arrival{At: c.Started.UnixNano(), End: c.Ended.UnixNano()})
				}
			}
			if len(calls) != 2 {
				t.Errorf("%d replicas made calls", len(calls))
			}
			address := bucket.Limit{Name: "address", Rate: &bucket.Rate{Count: 20, Per: time.Second, Burst: 1}}
			for name, of := range calls {
				slices.SortFunc(of, func(a, b bucket.Arrival) int { return int(a.At - b.At) })
				for _, l := range []bucket.Limit{address, {Name: "sockets", InFlight: 2}} {
					if v := bucket.Check(of, bucket.Expectation{Limit: l, Jitter: 50 * time.Millisecond}); v.Outcome != bucket.Pass {
						t.Errorf("%s: %s: %s", name, l.Name, v)
					}
				}
			}
			if shared != "" {
				r.CheckArrivals(referee.SharedRate("account", 30, 1))
			}
			got := program.Command(t, []string{"WEIR_NATS_URL=" + url, "WEIR_REPLICAS=1"}, "verify")
			if got.Code != 0 || !strings.Contains(got.Stdout, "address") || !strings.Contains(got.Stdout, "replica-") {
				t.Errorf("weir verify ends with %d: %s%s", got.Code, got.Stdout, got.Stderr)
			}
		})
	}
}

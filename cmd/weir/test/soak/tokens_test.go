package soak

import (
	"context"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
)

// tokenMinute is how long the producers submit. tokenProducers submit at the same time.
const (
	tokenMinute    = time.Minute
	tokenProducers = 100
	tokenKills     = 20
)

// onceKeyed says that the fake language model bills a repeated key once.
const onceKeyed = "idempotency: {header: Idempotency-Key}"

// TestEstimatesForAMinute lets a hundred producers submit more than a limit in tokens allows for a minute, with
// estimates that are too high, right or too low. It checks that no window is over by the vendor's count, that enough of
// the limit is used, and that weir spend equals the vendor's bill.
func TestEstimatesForAMinute(t *testing.T) {
	t.Parallel()
	for _, l := range weirtest.TokenCases("", "p99") {
		t.Run(l.What, func(t *testing.T) {
			t.Parallel()
			r := weirtest.NewKillRig(t, weirtest.TokenAPI(), l.YAML())
			l.Produce(r, tokenProducers, func(ctx context.Context) { stream.Sleep(ctx, tokenMinute) })
			if share := checkTokens(t, l, r); share < l.Least {
				t.Errorf("%s: %.0f %% of the limit was used, want %.0f %% at least", l.What, 100*share, 100*l.Least)
			}
		})
	}
}

// TestEstimatesOverKills is TestEstimatesForAMinute through twenty kills, with and without idempotency keys.
func TestEstimatesOverKills(t *testing.T) {
	t.Parallel()
	for _, l := range weirtest.TokenCases("") {
		for _, line := range []string{"", onceKeyed} {
			l := l
			l.Lines = line
			t.Run(l.What+" "+line, func(t *testing.T) {
				t.Parallel()
				r := weirtest.NewKillRig(t, weirtest.TokenAPI(), l.YAML())
				l.Produce(r, tokenProducers, func(ctx context.Context) {
					for range tokenKills {
						stream.Sleep(ctx, tokenMinute/tokenKills)
						r.Proc.Kill()
						r.Start()
					}
				})
				checkTokens(t, l, r)
			})
		}
	}
}

// TestEstimatesOfReplicas is TestEstimatesForAMinute with two replicas that count in Redis, of which one is killed
// after the other, twenty times.
func TestEstimatesOfReplicas(t *testing.T) {
	t.Parallel()
	for _, l := range weirtest.TokenCases("") {
		l.Lines = onceKeyed
		t.Run(l.What, func(t *testing.T) {
			t.Parallel()
			redis := servers.StartRedis(t)
			r := weirtest.NewReplicasOf(t, servers.OneServer(t), 2, weirtest.TokenAPI(), l.YAML(),
				"WEIR_REDIS_URL=redis://"+redis.Addr)
			l.Produce(r.KillRig, tokenProducers, func(ctx context.Context) {
				for n := range tokenKills {
					stream.Sleep(ctx, tokenMinute/tokenKills)
					r.Procs[n%2].Kill()
					r.StartOne(n % 2)
				}
			})
			checkTokens(t, l, r.KillRig)
		})
	}
}

// checkTokens judges a load by the ledger of the api. It returns how much of the limit in tokens was used.
func checkTokens(t *testing.T, l weirtest.Tokens, r *weirtest.KillRig) (share float64) {
	t.Helper()
	share = l.CheckWindows(t, r.Referee(), r.API.All())
	r.CheckSpent(l)
	if totals := r.API.Totals(); totals.Limited > 0 || totals.Billed < 100 {
		t.Errorf("%s: %+v", l.What, totals)
	}
	return share
}

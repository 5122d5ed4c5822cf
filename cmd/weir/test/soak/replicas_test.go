package soak

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
)

// TestReplicasKilled kills one replica after the other, and starts it again: as often as WEIR_TEST_KILLS says.
func TestReplicasKilled(t *testing.T) {
	t.Parallel()
	kills, _ := strconv.Atoi(os.Getenv("WEIR_TEST_KILLS"))
	if kills == 0 {
		t.Skip("set WEIR_TEST_KILLS to how often")
	}
	for _, line := range []string{weirtest.NotIdempotent, "idempotency: {header: Idempotency-Key}"} {
		r := weirtest.NewReplicas(t, servers.OneServer(t), 3, fmt.Sprintf(weirtest.ReplicaAPI, line))
		r.UnderLoad(8, 22*time.Millisecond, func(ctx context.Context) {
			for n := range kills {
				r.AwaitCalls(ctx, 200)
				r.Procs[n%3].Kill()
				r.AwaitCalls(ctx, 200)
				r.StartOne(n % 3)
			}
		})
		r.Judge(line)
		t.Logf("the longest a key waited: %s; calls by replica: %v", r.LongestGap(), r.CallsBy())
	}
}

// TestRollingRestart: replicas are replaced one after the other, and no producer notices that asks again.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	r := weirtest.NewReplicas(t, servers.OneServer(t), 3, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent))
	r.UnderLoad(8, 22*time.Millisecond, func(ctx context.Context) {
		for i := range r.Procs {
			r.AwaitCalls(ctx, 150)
			r.StopOne(i)
			r.AwaitCalls(ctx, 50)
			r.StartOne(i)
		}
	})
	r.Judge(weirtest.NotIdempotent)
	for id, out := range r.Outcomes() {
		if !strings.HasPrefix(out[0], "done") {
			t.Errorf("%s ended as %v", id, out)
		}
	}
	t.Logf("the longest a key waited: %s; calls by replica: %v", r.LongestGap(), r.CallsBy())
}

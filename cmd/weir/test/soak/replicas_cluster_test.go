package soak

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
)

// TestReplicasOnACluster: two replicas on three servers, of which one dies: nothing is lost, and nothing is called twice.
func TestReplicasOnACluster(t *testing.T) {
	t.Parallel()
	url, servers := servers.ThreeServers(t)
	r := weirtest.NewReplicas(t, url, 2, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent), "WEIR_REPLICAS=3", "WEIR_PARTITIONS=3")
	r.UnderLoad(6, 30*time.Millisecond, func(ctx context.Context) {
		r.AwaitCalls(ctx, 100)
		servers[0].Shutdown()
		servers[0].WaitForShutdown()
		r.AwaitCalls(ctx, 300)
	})
	r.Judge(weirtest.NotIdempotent)
	t.Logf("the longest a key waited: %s; calls by replica: %v", r.LongestGap(), r.CallsBy())
}

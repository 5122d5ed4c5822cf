package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// threeServers is a cluster of nats-servers, in this process: the address of all, and a way to end one.
func threeServers(t *testing.T) (url string, servers []*server.Server) {
	t.Helper()
	var routes, urls []string
	for range 3 {
		routes = append(routes, "nats://"+freePort(t))
	}
	for i := range 3 {
		opts := &server.Options{ServerName: fmt.Sprintf("n%d", i), JetStream: true, Cluster: server.ClusterOpts{Name: "c"}}
		servers = append(servers, startNATS(t, clustered(opts, routes, i, t.TempDir())))
		urls = append(urls, servers[i].ClientURL())
	}
	r := &rig{t: t}
	r.eventually("a cluster with a leader", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	return strings.Join(urls, ","), servers
}

// TestReplicasOnACluster: two replicas on three servers, of which one dies: nothing is lost, and nothing is called twice.
func TestReplicasOnACluster(t *testing.T) {
	url, servers := threeServers(t)
	r := newReplicas(t, url, 2, fmt.Sprintf(replicaAPI, notIdempotent), "WEIR_REPLICAS=3", "WEIR_PARTITIONS=3")
	r.underLoad(6, 30*time.Millisecond, func(ctx context.Context) {
		r.awaitCalls(ctx, 100)
		servers[0].Shutdown()
		servers[0].WaitForShutdown()
		r.awaitCalls(ctx, 300)
	})
	r.judge(notIdempotent)
	t.Logf("the longest a key waited: %s; calls by replica: %v", r.longestGap(), r.callsBy())
}

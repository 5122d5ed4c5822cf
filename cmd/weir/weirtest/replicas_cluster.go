package weirtest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// ThreeServers starts a cluster of three nats-servers in this process. It returns the addresses of all, and the
// servers, so that a test can end one.
func ThreeServers(t *testing.T) (url string, servers []*server.Server) {
	t.Helper()
	var routes, urls []string
	for range 3 {
		routes = append(routes, "nats://"+FreePort(t))
	}
	for i := range 3 {
		opts := &server.Options{ServerName: fmt.Sprintf("n%d", i), JetStream: true, Cluster: server.ClusterOpts{Name: "c"}}
		servers = append(servers, StartNATS(t, Clustered(opts, routes, i, t.TempDir())))
		urls = append(urls, servers[i].ClientURL())
	}
	r := &Rig{T: t}
	r.Eventually("a cluster with a leader", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	return strings.Join(urls, ","), servers
}

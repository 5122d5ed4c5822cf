package servers

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
)

// Clustered completes the options of the i-th server of a cluster.
func Clustered(opts *server.Options, routes []string, i int, dir string) *server.Options {
	addr := strings.TrimPrefix(routes[i], "nats://")
	opts.Host, opts.Port, opts.HTTPPort, opts.NoSigs, opts.NoLog, opts.StoreDir = "127.0.0.1", server.RANDOM_PORT, 0, true, true, dir
	opts.JetStreamMaxStore = 64 << 30
	opts.Cluster.Host, opts.Cluster.Port = "127.0.0.1", portOf(addr)
	opts.Routes = server.RoutesFromStr(strings.Join(routes, ","))
	return opts
}

func portOf(addr string) int {
	_, port, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(port)
	return n
}

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
	await.Until(t, "a cluster with a leader", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	return strings.Join(urls, ","), servers
}

func AwaitCluster(t *testing.T, servers []*server.Server) {
	t.Helper()
	await.Until(t, "a leader that knows the others", func() bool {
		return slices.ContainsFunc(servers, func(s *server.Server) bool { return len(s.JetStreamClusterPeers()) == len(servers) })
	})
}

package natstest

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"

	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// Cluster runs servers with JetStream until the test has ended, and returns a connection to one of them. A stream may
// have a copy on each. If synced is true, the servers sync every write.
func Cluster(t testing.TB, servers int, synced bool) jetstream.JetStream {
	t.Helper()
	routes := make([]net.Listener, servers)
	urls := ""
	for i := range routes { // all are bound at once, so that no port is given twice
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes[i] = l
		urls += ",nats://" + l.Addr().String()
	}
	all := make([]*server.Server, servers)
	for i, l := range routes {
		o := &server.Options{
			ServerName: fmt.Sprint("n", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
			JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 100 << 30, SyncAlways: synced,
		}
		if servers > 1 {
			_, port, _ := net.SplitHostPort(l.Addr().String())
			o.Cluster.Name, o.Cluster.Host = "c", "127.0.0.1"
			o.Cluster.Port, _ = strconv.Atoi(port)
			o.Routes = server.RoutesFromStr(urls[1:])
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		all[i] = start(t, o)
	}
	if servers > 1 {
		await.Until(t, "a leader that knows all servers", func() bool {
			return slices.ContainsFunc(all, func(s *server.Server) bool {
				return s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == servers
			})
		})
	}
	return Connect(t, all[0])
}

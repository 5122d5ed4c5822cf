package weirtest

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

var DeployDir = filepath.Join(Repository, "deploy")

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

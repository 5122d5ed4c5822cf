package connect

import (
	"fmt"
	"net"
	"slices"
	"testing"

	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// freeAddress returns an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return l.Addr().String()
}

// TestSuperclusterTellsItsSyncing asks a supercluster of two clusters, near and far, that share what JetStream knows. Of
// near, which stores weir's stream, only near's server tells, whether far answers or not.
func TestSuperclusterTellsItsSyncing(t *testing.T) {
	t.Parallel()
	near, far := freeAddress(t), freeAddress(t)
	run := func(name, gateway, jetStream string) *server.Server {
		opts := &server.Options{}
		if err := opts.ProcessConfigString(fmt.Sprintf(`
			server_name: %[1]s1
			jetstream { store_dir: %[2]q, %[3]s }
			cluster { name: %[1]s, listen: %[4]q, routes: ["nats://%[4]s"] }
			gateway { name: %[1]s, listen: %[5]q, gateways: [{name: near, url: "nats://%[6]s"}, {name: far, url: "nats://%[7]s"}] }
			%[8]s`, name, t.TempDir(), jetStream, freeAddress(t), gateway, near, far, syncAccounts)); err != nil {
			t.Fatal(err)
		}
		return start(t, opts)
	}
	both := []*server.Server{run("near", near, "sync_interval: always"), run("far", far, "")}
	await.Until(t, "a leader that knows both", func() bool {
		return slices.ContainsFunc(both, func(s *server.Server) bool { return len(s.JetStreamClusterPeers()) == len(both) })
	})
	c, err := Open(Address{
		URL: fmt.Sprintf("nats://asks:x@%s", both[0].Addr()), At: "here", Name: t.Name(), Timeout: await.Patience, Options: []nats.Option{nats.Timeout(await.Patience)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	kv, err := c.JetStream.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: ConfigBucket})
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	bucket, ok := status.(*jetstream.KeyValueBucketStatus)
	if !ok {
		t.Fatalf("the status is a %T", status)
	}
	own := ServersOf(bucket.StreamInfo().Cluster)
	if !slices.Equal(own, []string{"near1"}) {
		t.Fatalf("weir's servers are %v", own)
	}
	names := func(own []string) (names []string) {
		servers, missing, err := AskSyncing(t.Context(), c.Conn, c.Denied, "", own)
		if err != nil || missing != 0 {
			t.Errorf("%d missing, %v", missing, err)
		}
		for _, s := range servers {
			names = append(names, s.Server)
			if s.Always != (s.Server == "near1") {
				t.Errorf("%+v", s)
			}
		}
		return names
	}
	if got := names(own); !slices.Equal(got, own) {
		t.Errorf("of near tell %v", got)
	}
	if got := names([]string{"near1", "far1"}); !slices.Equal(got, []string{"far1", "near1"}) {
		t.Errorf("of both tell %v", got)
	}
	both[1].Shutdown()
	await.Return(t, "the end of far", both[1].WaitForShutdown)
	if got := names(own); !slices.Equal(got, own) {
		t.Errorf("of near, without far, tell %v", got)
	}
}

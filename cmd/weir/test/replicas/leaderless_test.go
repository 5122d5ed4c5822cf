package replicas

import (
	"context"
	"errors"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/weirtest/servers"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestLeaderlessStream checks that the last server of a cluster gives no information about a stream that has lost its
// leader. That server still answers for a stream that it alone stores.
func TestLeaderlessStream(t *testing.T) {
	t.Parallel()
	url, servers := servers.ThreeServers(t)
	everywhere, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(everywhere.Close)
	js, err := jetstream.New(everywhere)
	if err != nil {
		t.Fatal(err)
	}
	for name, replicas := range map[string]int{"THREE": 3, "ONE": 1} {
		if _, err := stream.EnsureStream(t.Context(), js, stream.Options{
			Config: jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: replicas},
		}); err != nil {
			t.Fatal(err)
		}
	}
	one, err := stream.Open(t.Context(), stream.FromLeader(js), "ONE")
	if err != nil {
		t.Fatal(err)
	}
	var last *server.Server // the server that stores ONE
	for _, s := range servers {
		if s.Name() == one.CachedInfo().Cluster.Leader {
			last = s
		}
	}
	if last == nil {
		t.Fatalf("ONE is stored by %+v", one.CachedInfo().Cluster)
	}
	nc, err := nats.Connect(last.ClientURL(), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	led := stream.FromLeader(js)
	three, err := stream.Open(t.Context(), led, "THREE")
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "all members of THREE", func() bool {
		info, err := three.Info(t.Context())
		if err != nil {
			return false
		}
		current := 0
		for _, p := range info.Cluster.Replicas {
			if p.Current {
				current++
			}
		}
		return current == 2
	})

	for _, s := range servers {
		if s != last {
			s.Shutdown()
			s.WaitForShutdown()
		}
	}
	await.Until(t, "the last server to answer for THREE", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s, err := js.Stream(ctx, "THREE")
		return err == nil && s.CachedInfo().Cluster.Leader == ""
	})
	for name, ask := range map[string]func(context.Context) error{
		"Stream": func(ctx context.Context) error { _, err := led.Stream(ctx, "THREE"); return err },
		"Info":   func(ctx context.Context) error { _, err := three.Info(ctx); return err },
		"StateOf": func(ctx context.Context) error {
			_, err := stream.StateOf(ctx, nc, "THREE", "THREE")
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s without a leader: %v", name, err)
		}
	}
	if state, err := stream.StateOf(t.Context(), nc, "ONE", "ONE"); err != nil || state.Msgs != 0 {
		t.Errorf("the state of the stream that only this server stores: %+v, %v", state, err)
	}
	if _, err := led.Stream(t.Context(), "ONE"); err != nil {
		t.Errorf("the stream that only this server stores: %v", err)
	}
}

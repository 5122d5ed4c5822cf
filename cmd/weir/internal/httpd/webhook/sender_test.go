package webhook

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"weir/bucket/lease"
	"weir/bucket/natstest"
	"weir/cmd/weir/internal/config"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
)

// TestRemovedDestinationIsForgotten checks that a start deletes the position of a destination that was removed while no
// replica ran. It keeps the positions of a configured destination, and of one to which another replica sends.
func TestRemovedDestinationIsForgotten(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "control"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"removed", "configured", "elsewhere"} {
		if _, err := kv.Put(t.Context(), "notify."+name+".position", []byte(`{"seq":7}`)); err != nil {
			t.Fatal(err)
		}
	}
	l, err := lease.AcquireLease(t.Context(), js.Conn(), kv, "notify.elsewhere.lease", "another")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	kept := make(chan error, 1)
	go func() { kept <- l.Keep(ctx) }()
	s := New(Options{
		JetStream: js, Control: kv, Configured: func() *config.Config {
			return &config.Config{Notifications: []config.Destination{{Name: "configured"}}}
		},
		Version: func() uint64 { return 1 }, Instance: "this", Log: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err := s.forgetRemoved(t.Context()); err != nil {
		t.Error(err)
	}
	cancel()
	if err := await.Receive(t, "the end of the lease", kept); err != nil {
		t.Errorf("the other replica's lease: %v", err)
	}
	for name, forgotten := range map[string]bool{"removed": true, "configured": false, "elsewhere": false} {
		if _, err := kv.Get(t.Context(), "notify."+name+".position"); errors.Is(err, jetstream.ErrKeyNotFound) != forgotten {
			t.Errorf("the position of %s: %v", name, err)
		}
	}
	if _, err := kv.Get(t.Context(), "notify.removed.lease"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the lease of the removed one: %v", err)
	}
}

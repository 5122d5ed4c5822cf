package replicas

import (
	"fmt"
	"log/slog"
	"testing"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/servers"
	"weir/dispatcher/recorder"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestGoneAreKnown: a process on the same machine with the same directory knows at once that a replica was killed. A
// stopped replica is not known to be gone, and no replica is to a process with another directory.
func TestGoneAreKnown(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	looking, err := recorder.Open(recorder.Options{Dir: state, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Skip(err)
	}
	elsewhere, err := recorder.Open(recorder.Options{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := weirtest.NewReplicas(t, servers.OneServer(t), 3, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent), "WEIR_STATE_DIR="+state)
	js, err := jetstream.New(r.NC)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := lease.FindRegistry(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	registry.Show(looking)
	sessions := map[string]string{}
	all := make(chan struct{})
	go func() {
		_ = registry.Watch(t.Context(), func(s lease.Sighting) {
			if s.Member == nil || len(sessions) == 3 {
				return
			}
			if sessions[s.Member.Instance] = s.Session; len(sessions) == 3 {
				close(all)
			}
		})
	}()
	await.Receive(t, "the sessions of all replicas", all)
	r.Signal(1, program.Freezes)
	r.Procs[0].Kill()
	for instance, want := range map[string]bool{"replica-0": true, "replica-1": false, "replica-2": false} {
		if registry.Gone(sessions[instance]) != want {
			t.Errorf("%s, session %s: gone is %v", instance, sessions[instance], !want)
		}
	}
	registry.Show(elsewhere)
	for instance, session := range sessions {
		if registry.Gone(session) {
			t.Errorf("%s counts as gone for a replica that cannot know", instance)
		}
	}
	r.Signal(1, program.Thaws)
}

package stream

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"weir/bucket/natstest"

	"github.com/nats-io/nats.go/jetstream"
)

// TestStreamKeepsItsRoom checks that a stream whose size is not configured serves with the room that it has if the
// server has no more, as a second weir finds it at the server inside a first one. The other settings change all the same.
func TestStreamKeepsItsRoom(t *testing.T) {
	js := natstest.Connect(t, natstest.StartSmall(t, 2<<20))
	var log bytes.Buffer
	ask := func(bytes int64, configured Bounds, subjects ...string) (*jetstream.StreamConfig, error) {
		return EnsureStream(t.Context(), js, Options{
			Kind: "results", Configured: configured, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Config: jetstream.StreamConfig{Name: "kept", Subjects: subjects, MaxBytes: bytes, Replicas: 1},
		})
	}
	if _, err := ask(1<<20, 0, "a"); err != nil {
		t.Fatal(err)
	}
	got, err := ask(8<<20, 0, "a", "b")
	if err != nil || got.MaxBytes != 1<<20 || len(got.Subjects) != 2 {
		t.Fatalf("a larger stream than the server has room for: %+v %v", got, err)
	}
	if !strings.Contains(log.String(), "keeps the room that it has") || !strings.Contains(log.String(), "wanted_bytes=8388608") {
		t.Errorf("the log: %s", log.String())
	}
	if _, err := ask(8<<20, SizeBound, "a"); !noRoom(err) {
		t.Errorf("a configured size for which there is no room: %v", err)
	}
}

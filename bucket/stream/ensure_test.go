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

// TestRoomThatIsKept checks when a stream keeps the room that it has: if it has less than a size that is not configured.
// A stream that asks for no size keeps nothing.
func TestRoomThatIsKept(t *testing.T) {
	for _, c := range []struct {
		room, wanted int64
		configured   Bounds
		want         bool
	}{
		{1 << 20, 8 << 20, 0, true},
		{1 << 20, 8 << 20, SizeBound, false},
		{8 << 20, 8 << 20, 0, false},
		{-1, 0, 0, false}, // as for the streams of queues and key-value buckets
		{-1, 8 << 20, 0, false},
	} {
		o := Options{Configured: c.configured, Config: jetstream.StreamConfig{MaxBytes: c.wanted}}
		if got := o.canKeep(c.room); got != c.want {
			t.Errorf("a stream of %d bytes that should have %d, configured %v, keeps its room: %v", c.room, c.wanted, c.configured, got)
		}
	}
}

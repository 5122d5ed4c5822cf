package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"weir/bucket/natstest"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
)

// TestNearlyFullStore checks what the log says when the store is nearly full: a job that still fits is accepted then,
// and a larger one is not. Jobs that were accepted since the last look count.
func TestNearlyFullStore(t *testing.T) {
	js := natstest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	const size = 100_000
	if _, err := js.Publish(t.Context(), "s", make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	g := newDiskGuard(js, size/7*8+4000, true, 1, slog.New(slog.NewTextHandler(&log, nil)))
	g.look(t.Context())
	if g.err() == nil || !g.let(1000) || g.let(size/10) {
		t.Fatalf("%d of %d bytes are used: %v", g.used.Load(), g.most(), g.err())
	}
	let := 0
	for let < 5 && g.let(1000) { // none of them is part of the use that was looked up
		let++
	}
	if let == 5 {
		t.Errorf("%d more jobs are accepted, and %d of %d bytes were used before", let, g.used.Load(), g.most())
	}
	if text := log.String(); !strings.Contains(text, "refuses jobs that do not fit") {
		t.Errorf("weir says %s", text)
	}
}

// TestRaisedLimitMakesRoom checks that a diskGuard accepts jobs again when an operator raises the limit of the account,
// and that an account without a limit has no room to guard.
func TestRaisedLimitMakesRoom(t *testing.T) {
	ns := natstest.Start(t, t.TempDir(), server.RANDOM_PORT)
	js := natstest.Connect(t, ns)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	g := newDiskGuard(js, 1<<30, false, 1, slog.New(slog.DiscardHandler))
	for _, room := range []int64{32 << 10, 32 << 20, -1} {
		limits := map[string]server.JetStreamAccountLimits{"": {MaxMemory: -1, MaxStore: room, MaxStreams: -1, MaxConsumers: -1}}
		if err := ns.GlobalAccount().UpdateJetStreamLimits(limits); err != nil {
			t.Fatal(err)
		}
		g.look(t.Context())
		if fits := g.let(64 << 10); fits != (room != 32<<10) {
			t.Errorf("a job of 64 KiB fits into the room of %d bytes: %v", room, fits)
		}
		if _, known := g.ratio(); known != (room > 0) {
			t.Errorf("the used part of the room of %d bytes is known: %v", room, known)
		}
	}
}

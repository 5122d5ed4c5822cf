package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"weir/bucket/natstest"

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
	g := newDiskGuard(js, size/7*8+4000, slog.New(slog.NewTextHandler(&log, nil)))
	g.look(t.Context())
	if g.err() == nil || !g.let(1000) || g.let(size/10) {
		t.Fatalf("%d of %d bytes are used: %v", g.used.Load(), g.most, g.err())
	}
	let := 0
	for let < 5 && g.let(1000) { // none of them is part of the use that was looked up
		let++
	}
	if let == 5 {
		t.Errorf("%d more jobs are accepted, and %d of %d bytes were used before", let, g.used.Load(), g.most)
	}
	if text := log.String(); !strings.Contains(text, "refuses jobs that do not fit") {
		t.Errorf("weir says %s", text)
	}
}

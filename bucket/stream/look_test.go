package stream

import (
	"errors"
	"sync/atomic"
	"testing"

	"weir/bucket/natstest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestLookAsksAgain checks that Look asks again if no server answers, and that a missing stream counts as an answer.
// The requests reach a real server through another subject, on which the first request for each stream is lost.
func TestLookAsksAgain(t *testing.T) {
	js := natstest.JetStream(t)
	nc := js.Conn()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "there", Subjects: []string{"there"}}); err != nil {
		t.Fatal(err)
	}
	var lost atomic.Int32
	asked := map[string]bool{}
	if _, err := nc.Subscribe("lossy.STREAM.INFO.*", func(m *nats.Msg) {
		if !asked[m.Subject] {
			asked[m.Subject] = true
			lost.Add(1)
			return
		}
		_ = nc.PublishRequest("$JS.API"+m.Subject[len("lossy"):], m.Reply, m.Data) // the lookup fails without an answer
	}); err != nil {
		t.Fatal(err)
	}
	lossy, err := jetstream.NewWithAPIPrefix(nc, "lossy")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Look(t.Context(), lossy, "there"); err != nil || s.CachedInfo().Config.Name != "there" {
		t.Errorf("%v", err)
	}
	if _, err := Look(t.Context(), lossy, "missing"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a missing stream: %v", err)
	}
	if n := lost.Load(); n != 2 {
		t.Errorf("%d requests were lost", n)
	}
}

// TestOpenAsksAgain checks that Open finds a stream although the first server that it asks does not know of the stream
// yet. The real server answers the first request for each stream as for a stream that it does not have.
func TestOpenAsksAgain(t *testing.T) {
	js := natstest.JetStream(t)
	nc := js.Conn()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "there", Subjects: []string{"there"}}); err != nil {
		t.Fatal(err)
	}
	const info = "$JS.API.STREAM.INFO."
	asked := false
	if _, err := nc.Subscribe("behind.STREAM.INFO.there", func(m *nats.Msg) {
		name := "there"
		if !asked {
			name = "missing"
		}
		asked = true
		_ = nc.PublishRequest(info+name, m.Reply, m.Data) // the lookup fails without an answer
	}); err != nil {
		t.Fatal(err)
	}
	behind, err := jetstream.NewWithAPIPrefix(nc, "behind")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), behind, "there"); err != nil || s.CachedInfo().Config.Name != "there" {
		t.Errorf("%v", err)
	}
}

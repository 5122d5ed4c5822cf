package streamwatch

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/dispatcher"

	"github.com/nats-io/nats.go/jetstream"
)

// scene is a watch over four existing streams.
type scene struct {
	*Watch
	t      *testing.T
	remade []map[string]uint64
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t}
	js := natstest.JetStream(t)
	s.Watch = New(Options{
		JetStream: js, Instance: "me", Log: slog.New(slog.DiscardHandler),
		Remade: []string{"WEIR_CALLS", "WEIR_EVENTS", "WEIR_DEAD"}, Buckets: []string{"KV_weir_control"},
		Queues: func() []string { return []string{"WEIR_a_0"} },
		Remake: func(_ context.Context, firstSeq map[string]uint64) error {
			s.remade = append(s.remade, firstSeq)
			for name, first := range firstSeq {
				s.create(name, first)
			}
			return nil
		},
	})
	for _, name := range append([]string{"WEIR_a_0"}, append(s.Remade, s.Buckets...)...) {
		s.create(name, 0)
	}
	s.Look(t.Context())
	s.requireTold()
	return s
}

func (s *scene) create(name string, first uint64) {
	s.t.Helper()
	subject := map[string]string{"WEIR_a_0": "weir.q.a.0.>", "WEIR_EVENTS": "weir.events.>"}[name]
	if subject == "" {
		subject = name + ".>"
	}
	if _, err := s.JetStream.CreateStream(s.t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, FirstSeq: first}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) publish(name string, n int) {
	s.t.Helper()
	for range n {
		if _, err := s.JetStream.Publish(s.t.Context(), name+".x", nil); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *scene) remove(name string) {
	s.t.Helper()
	if err := s.JetStream.DeleteStream(s.t.Context(), name); err != nil {
		s.t.Fatal(err)
	}
}

// requireTold checks the beginnings of the reported changes.
func (s *scene) requireTold(want ...string) {
	s.t.Helper()
	var all []string
	for _, c := range s.Changes() {
		all = append(all, c.Stream+": "+c.What)
	}
	if len(all) != len(want) {
		s.t.Fatalf("told %q, want %q", all, want)
	}
	for i := range want {
		if !strings.HasPrefix(all[i], want[i]) {
			s.t.Errorf("told %q, want %q", all[i], want[i])
		}
	}
}

func (s *scene) events() uint64 {
	s.t.Helper()
	stream, err := s.JetStream.Stream(s.t.Context(), "WEIR_EVENTS")
	if err != nil {
		s.t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

// TestDeletedStreamIsToldAndMadeAgain checks that a stream that is missing in two looks is reported by name, makes weir
// not ready, and is made again behind its last sequence. Then it is reported as back.
func TestDeletedStreamIsToldAndMadeAgain(t *testing.T) {
	s := newScene(t)
	s.publish("WEIR_CALLS", 5)
	s.Look(t.Context())
	s.remove("WEIR_CALLS")
	s.Look(t.Context())
	s.requireTold()
	if s.Err() != nil {
		t.Errorf("not ready after one look: %v", s.Err())
	}
	s.Look(t.Context())
	s.requireTold("WEIR_CALLS: the stream was deleted; ")
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "WEIR_CALLS") {
		t.Errorf("ready: %v", err)
	}
	if len(s.remade) != 1 || s.remade[0]["WEIR_CALLS"] != 5+remadeAt || len(s.remade[0]) != 1 {
		t.Errorf("made again: %v", s.remade)
	}
	s.Look(t.Context())
	s.requireTold("WEIR_CALLS: the stream was deleted by hand and is there again")
	if s.Err() != nil || s.events() != 2 {
		t.Errorf("not ready: %v; %d events", s.Err(), s.events())
	}
	s.Look(t.Context())
	if len(s.Changes()) != 1 || s.events() != 2 {
		t.Errorf("told again: %v, %d events", s.Changes(), s.events())
	}
}

// TestDeletedBucketIsNotMadeAgain checks that a missing bucket and a missing queue are reported and not made again. An
// empty bucket would mean that there were no commands, and the queue's owner makes the queue again.
func TestDeletedBucketIsNotMadeAgain(t *testing.T) {
	s := newScene(t)
	s.remove("KV_weir_control")
	s.remove("WEIR_a_0")
	s.Look(t.Context())
	s.Look(t.Context())
	s.requireTold("KV_weir_control: the stream was deleted; ", "WEIR_a_0: the stream was deleted; ")
	if len(s.remade) != 0 || s.Err() == nil {
		t.Errorf("made again: %v; %v", s.remade, s.Err())
	}
	s.create("WEIR_a_0", 100)
	s.Look(t.Context())
	s.requireTold("KV_weir_control: the stream was deleted; ", "WEIR_a_0: the stream was deleted by hand and is there again")
}

// TestFailedLookReportsNothingBack checks that a missing stream is not reported as back by a look that the server does
// not answer, and that the stream of a queue that does not exist any more is not reported at all.
func TestFailedLookReportsNothingBack(t *testing.T) {
	s := newScene(t)
	s.remove("KV_weir_control")
	s.remove("WEIR_a_0")
	s.Look(t.Context())
	s.Look(t.Context())
	gone := []string{"KV_weir_control: the stream was deleted; ", "WEIR_a_0: the stream was deleted; "}
	s.requireTold(gone...)
	unanswered, cancel := context.WithCancel(t.Context())
	cancel()
	s.Look(unanswered)
	s.requireTold(gone...)
	if s.Err() == nil {
		t.Error("ready")
	}
	s.Queues = func() []string { return nil }
	s.Look(t.Context())
	s.requireTold(gone[0])
}

// TestPurgesAreTold checks that a purge is reported, and a stream that was deleted and made again between two looks.
// Messages dropped by age, and letters that operators purge, are not.
func TestPurgesAreTold(t *testing.T) {
	s := newScene(t)
	s.publish("WEIR_CALLS", 5)
	s.publish("WEIR_DEAD", 5)
	s.Look(t.Context())
	for _, name := range []string{"WEIR_CALLS", "WEIR_DEAD"} {
		stream, err := s.JetStream.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Purge(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.remove("KV_weir_control")
	s.create("KV_weir_control", 0)
	s.Look(t.Context())
	s.requireTold("WEIR_CALLS: it was purged by hand: the 5 messages", "KV_weir_control: the stream was deleted by hand, and made again")
	now := time.Now()
	if what := (seen{first: 6, last: 5, age: time.Hour}).lacks(seen{first: 1, last: 5, msgs: 5, newest: now.Add(-2 * time.Hour)}, now); what != "" {
		t.Errorf("what age took is told: %s", what)
	}
}

// TestRemadeAfterOneLookIsTold checks that a stream that was missing in only one look is reported if it is another
// stream.
func TestRemadeAfterOneLookIsTold(t *testing.T) {
	s := newScene(t)
	s.publish("WEIR_CALLS", 5)
	s.Look(t.Context())
	s.remove("WEIR_CALLS")
	s.Look(t.Context())
	s.create("WEIR_CALLS", 0)
	for range 2 {
		s.Look(t.Context())
		s.requireTold("WEIR_CALLS: the stream was deleted by hand, and made again")
	}
}

// TestEventsWaitForTheirStream checks that the event of a change is stored when the stream of events exists again.
func TestEventsWaitForTheirStream(t *testing.T) {
	s := newScene(t)
	s.remove("WEIR_EVENTS")
	s.Note(dispatcher.StreamChange{Stream: "WEIR_a_0", What: "purged", At: time.Now()})
	soon, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s.Look(soon)
	s.Look(t.Context()) // the stream is made again
	s.Look(t.Context())
	if n := s.events(); n != 3 {
		t.Errorf("%d events", n)
	}
}

package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/ingest"
	"weir/ingest/await"
)

// newSource returns a stream of five messages, of which the third and the last are deleted.
func newSource(t *testing.T) (jetstream.JetStream, jetstream.Stream) {
	t.Helper()
	js := natstest.JetStream(t)
	source, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		put(t, js, i+1)
	}
	for _, seq := range []uint64{3, 5} {
		if err := source.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	return js, source
}

func put(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	m := &nats.Msg{Subject: fmt.Sprint("s.", n), Header: nats.Header{ingest.HeaderMsgID: {fmt.Sprint("id-", n)}}, Data: []byte("x")}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

// TestRemember checks that Remember reads the ids and sequences of all messages that a stream still has, and of none
// that was stored before Since.
func TestRemember(t *testing.T) {
	js, source := newSource(t)
	found, err := Remember(t.Context(), Newest{JetStream: js, Stream: "S", Since: time.Now().Add(-time.Hour)}, nil)
	if err != nil || len(found) != 3 {
		t.Fatalf("%+v, %v", found, err)
	}
	for i, seq := range []uint64{1, 2, 4} {
		if m := found[i]; m.Seq != seq || m.ID != fmt.Sprint("id-", seq) || m.Subject != fmt.Sprint("s.", seq) || time.Since(m.At).Abs() > time.Minute {
			t.Errorf("message %d is remembered as %+v", seq, m)
		}
	}
	if found, err = Remember(t.Context(), Newest{JetStream: js, Stream: "S", Since: time.Now().Add(time.Hour)}, nil); err != nil || len(found) != 0 {
		t.Errorf("of the future %+v, %v", found, err)
	}
	if err := source.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found, err = Remember(t.Context(), Newest{JetStream: js, Stream: "S", Since: time.Now().Add(-time.Hour)}, nil); err != nil || len(found) != 0 {
		t.Errorf("of an empty stream %+v, %v", found, err)
	}
	if _, err := Remember(t.Context(), Newest{JetStream: js, Stream: "NONE", Since: time.Now()}, nil); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("of a stream that is not there: %v", err)
	}
}

// TestRememberIsBounded checks that Remember leaves out the oldest ids beyond the bound, and logs that.
func TestRememberIsBounded(t *testing.T) {
	js, _ := newSource(t)
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	since := time.Now().Add(-time.Hour)
	for most, want := range map[int][]uint64{2: {2, 4}, 3: {1, 2, 4}} {
		logged.Reset()
		found, err := Remember(t.Context(), Newest{JetStream: js, Stream: "S", Since: since, Most: most}, log)
		if err != nil {
			t.Fatal(err)
		}
		var seqs []uint64
		for _, m := range found {
			seqs = append(seqs, m.Seq)
		}
		if !slices.Equal(seqs, want) || strings.Contains(logged.String(), "stream=S ids=2") != (most == 2) {
			t.Errorf("of at most %d it remembers %v, and logs %q", most, seqs, &logged)
		}
	}
}

// TestFollow checks that Follow passes the present messages and later ones, until take fails or its context ends.
func TestFollow(t *testing.T) {
	js, source := newSource(t)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	defer cancel(nil)
	got, ended := make(chan string, 10), make(chan error, 2)
	follow := func(take func(jetstream.Msg) error) {
		ended <- Follow(ctx, source, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}, take)
	}
	go follow(func(msg jetstream.Msg) error { got <- msg.Subject(); return nil })
	var subjects []string
	for range 3 {
		subjects = append(subjects, await.Receive(t, "what is there", got))
	}
	put(t, js, 6)
	if subjects = append(subjects, await.Receive(t, "what comes", got)); !slices.Equal(subjects, []string{"s.1", "s.2", "s.4", "s.6"}) {
		t.Errorf("it gets %v", subjects)
	}
	enough := errors.New("enough")
	go follow(func(jetstream.Msg) error { return enough })
	if err := await.Receive(t, "the end of one that has enough", ended); !errors.Is(err, enough) {
		t.Error(err)
	}
	stopped := errors.New("stopped")
	cancel(stopped)
	if err := await.Receive(t, "the end of the other", ended); !errors.Is(err, stopped) {
		t.Error(err)
	}
}

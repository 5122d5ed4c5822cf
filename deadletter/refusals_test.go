package deadletter

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// writerBytes bounds the bytes that may wait in a Writer of these tests.
const writerBytes = 1 << 20

// openWriter returns a Writer that does not run yet.
func openWriter(t *testing.T, js jetstream.JetStream) *Writer {
	t.Helper()
	w, err := Open(t.Context(), Options{
		Conn: js.Conn(), JetStream: js, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 30, MaxWaiting: writerBytes,
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// during runs a part of a Writer until the test ends or stop is called.
func during(t *testing.T, run func(ctx context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = func() {
		if ctx.Err() != nil {
			return
		}
		cancel()
		if err := await.Receive(t, "the writer's end", ended); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// refusal is the answer to a producer.
type refusal struct {
	letter uint64
	err    error
}

// refuse passes a Writer the same overflowed job each time.
func refuse(w *Writer, body []byte) <-chan refusal {
	answered := make(chan refusal, 1)
	w.BuryRefused(ingest.Refused{
		API: "pay", Key: "k", JobID: "j", Header: nats.Header{ingest.HeaderMsgID: {"j"}}, Body: body,
		Refusal: &ingest.Refusal{Code: ingest.Throttled},
	}, func(seq uint64, err error) { answered <- refusal{seq, err} })
	return answered
}

// TestSharedLetterStays checks that a replica whose event could not be stored leaves the letter, because another
// replica may have named it to the producer.
func TestSharedLetterStays(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	first, second := openWriter(t, js), openWriter(t, js)
	during(t, first.letters.Run)
	waits := refuse(first, nil)
	b, err := OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the letter of the first replica", func() bool { _, err := b.Get(t.Context(), 1); return err == nil })
	during(t, second.Run)
	told := await.Receive(t, "the answer of the second replica", refuse(second, nil))
	if told.letter != 1 || told.err != nil {
		t.Fatalf("the second replica names letter %d, %v", told.letter, told.err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.events.Run(ended); err != nil {
		t.Fatal(err)
	}
	if told := await.Receive(t, "the answer of the first replica", waits); told.err == nil {
		t.Fatalf("the first replica names letter %d, whose event it did not store", told.letter)
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
	if k, err := b.Get(t.Context(), 1); err != nil || k.JobID != "j" {
		t.Errorf("the letter that the producer was told of: %v", err)
	}
}

// TestEventOfAnotherReplicasLetter checks a replica whose own letter was purged: it sends the event of the next letter,
// which another replica has stored without its event.
func TestEventOfAnotherReplicasLetter(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	w := openWriter(t, js)
	during(t, w.Run)
	if told := await.Receive(t, "the first answer", refuse(w, nil)); told.letter != 1 || told.err != nil {
		t.Fatalf("the first answer names letter %d, %v", told.letter, told.err)
	}
	b, err := OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	k, err := b.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	next := k.Letter
	next.refusedID = strings.TrimSuffix(k.Header.Get(ingest.HeaderMsgID), "-0") + "-2"
	if _, err := js.PublishMsg(t.Context(), next.Message()); err != nil {
		t.Fatal(err)
	}
	if told := await.Receive(t, "the second answer", refuse(w, nil)); told.letter != 2 || told.err != nil {
		t.Fatalf("the second answer names letter %d, %v", told.letter, told.err)
	}
	events, err := js.Stream(t.Context(), EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := events.GetLastMsgForSubject(t.Context(), "weir.events.throttled.>")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(msg.Data), `"dead_letter_seq":2`) {
		t.Errorf("the newest event is %s", msg.Data)
	}
}

// TestWaitingRefusalsAreBounded checks that the refusals that wait for one letter hold no more bytes than a Writer may.
func TestWaitingRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	w := openWriter(t, natstest.JetStream(t)) // stores nothing
	const size, tries = 100 << 10, 100
	held := 0
	for range tries {
		select {
		case told := <-refuse(w, make([]byte, size)):
			if !errors.Is(told.err, stream.ErrWriterFull) {
				t.Fatalf("told of letter %d, %v", told.letter, told.err)
			}
		default:
			held++
		}
	}
	if held < 2 || held*size > 2*writerBytes {
		t.Errorf("%d of %d refusals of %d bytes wait, where %d bytes may", held, tries, size, writerBytes)
	}
}

// TestRefusalsEndWhileTheirLetterIsLookedUp checks that a Writer may end after it found that a job's letter is gone, and
// before it stores another one. The refusals that waited have an answer by then.
func TestRefusalsEndWhileTheirLetterIsLookedUp(t *testing.T) {
	t.Parallel()
	w := openWriter(t, natstest.JetStream(t))
	during(t, w.letters.Run)
	during(t, w.events.Run)
	if told := await.Receive(t, "the first answer", refuse(w, nil)); told.letter != 1 || told.err != nil {
		t.Fatalf("the first answer names letter %d, %v", told.letter, told.err)
	}
	waits := refuse(w, nil)
	j := await.Receive(t, "the check of the letter", w.refusals.checks)
	w.refusals.end(stream.ErrStopping)
	if told := await.Receive(t, "the second answer", waits); !errors.Is(told.err, stream.ErrStopping) {
		t.Errorf("the second answer names letter %d, %v", told.letter, told.err)
	}
	w.buryAgain(j)
}

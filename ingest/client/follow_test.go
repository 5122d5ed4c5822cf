package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"weir/ingest/await"
	"weir/ingest/client"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// storeResults stores results of the jobs 0 to n-1.
func (s *fakeIntake) storeResults(t *testing.T, n int) {
	t.Helper()
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "WEIR_RESULTS", Subjects: []string{"weir.results.>"}}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		h := nats.Header{"Weir-Job-Id": {fmt.Sprint(i)}, "Weir-Outcome": {"done"}}
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "weir.results.a.k", Header: h}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFollowKeepsTheOrder lets readers of many names fail many times. Each time the next reader of the name begins with
// the result that was not handled, and not with the one behind it. All names read at once, so that the server has no
// time between a reader and the next one.
func TestFollowKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const names, results = 50, 20
	s := newFakeIntake(t)
	s.storeResults(t, results+1)
	var readers sync.WaitGroup
	for i := range names {
		readers.Go(func() { s.readAndFail(t, fmt.Sprint("billing", i), results) })
	}
	await.Return(t, "the readers of all names", readers.Wait)
}

// readAndFail reads results as name. Each reader handles the result at which the one before it failed, and fails at the
// next.
func (s *fakeIntake) readAndFail(t *testing.T, name string, results int) {
	reader, failed := client.New(s.nc, client.Options{}), errors.New("for the test")
	for n := range results {
		var got []string
		handle := func(_ context.Context, end client.End) error {
			if got = append(got, end.Job); len(got) == 1 && n > 0 {
				return nil
			}
			return failed
		}
		err := reader.Follow(await.Context(t, "the result that failed, and the next one"), client.Results{Name: name}, handle)
		want := []string{fmt.Sprint(max(0, n-1)), fmt.Sprint(n)}
		if n == 0 {
			want = want[:1]
		}
		if !errors.Is(err, failed) || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("reader %d of %s got %q, want %q: %v", n, name, got, want, err)
			return
		}
	}
}

// TestFollowAsksForTheReturn checks that Follow asks the server to confirm that a result is given back. Without that
// question a next reader may begin too early. TestFollowKeepsTheOrder sees the mistake only on some machines.
func TestFollowAsksForTheReturn(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	s.storeResults(t, 1)
	acks, err := s.nc.SubscribeSync("$JS.ACK.WEIR_RESULTS.>")
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("for the test")
	fail := func(context.Context, client.End) error { return failed }
	reader := client.New(s.nc, client.Options{})
	if err := reader.Follow(await.Context(t, "the result"), client.Results{Name: "billing"}, fail); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	msg, err := acks.NextMsgWithContext(await.Context(t, "the return"))
	if err != nil {
		t.Fatal(err)
	}
	if string(msg.Data) != "-NAK" || msg.Reply == "" {
		t.Errorf("Follow sent %q, and asks for the answer at %q", msg.Data, msg.Reply)
	}
}

// TestFollowNotesTheLastResult checks that the server knows that a result was handled although ctx ended meanwhile. The
// result would otherwise come again after later ones.
func TestFollowNotesTheLastResult(t *testing.T) {
	t.Parallel()
	s := newFakeIntake(t)
	s.storeResults(t, 2)
	ctx, cancel := context.WithCancel(await.Context(t, "the first result"))
	defer cancel()
	err := client.New(s.nc, client.Options{}).Follow(ctx, client.Results{Name: "billing"}, func(context.Context, client.End) error {
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := js.Consumer(t.Context(), "WEIR_RESULTS", "billing")
	if err != nil {
		t.Fatal(err)
	}
	if handled := reader.CachedInfo().AckFloor.Stream; handled != 1 {
		t.Errorf("the server knows of the results up to %d", handled)
	}
}

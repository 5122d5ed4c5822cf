package client_test

import (
	"context"
	"errors"
	"fmt"
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
// the result that was not handled, and not with the one behind it.
func TestFollowKeepsTheOrder(t *testing.T) {
	t.Parallel()
	const names, results = 25, 20
	s := newFakeIntake(t)
	s.storeResults(t, results+1)
	reader, failed := client.New(s.nc, client.Options{}), errors.New("for the test")
	for i := range names {
		name := fmt.Sprint("billing", i)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := range results { // each reader handles the result that failed before, and fails at the next
				var got []string
				err := reader.Follow(await.Context(t, "the result that failed, and the next one"), client.Results{Name: name}, func(_ context.Context, end client.End) error {
					if got = append(got, end.Job); len(got) == 1 && n > 0 {
						return nil
					}
					return failed
				})
				want := []string{fmt.Sprint(max(0, n-1)), fmt.Sprint(n)}
				if n == 0 {
					want = want[:1]
				}
				if !errors.Is(err, failed) || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("reader %d got %q, want %q: %v", n, got, want, err)
				}
			}
		})
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

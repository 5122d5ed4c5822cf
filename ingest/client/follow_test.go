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

// TestFollowKeepsTheOrder lets a reader fail many times. Each time the next reader begins with the result that was not
// handled, and not with the one behind it.
func TestFollowKeepsTheOrder(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := newFakeIntake(t)
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "WEIR_RESULTS", Subjects: []string{"weir.results.>"}}); err != nil {
		t.Fatal(err)
	}
	const results = 500
	for n := range results + 1 {
		h := nats.Header{"Weir-Job-Id": {fmt.Sprint(n)}, "Weir-Outcome": {"done"}}
		if _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "weir.results.a.k", Header: h}); err != nil {
			t.Fatal(err)
		}
	}
	reader, failed := client.New(s.nc, client.Options{}), errors.New("for the test")
	for n := range results { // each reader handles the result that failed before, and fails at the next
		var got []string
		err := reader.Follow(await.Context(t, "the result that failed, and the next one"), client.Results{Name: "billing"}, func(_ context.Context, end client.End) error {
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
}

package jobs

import (
	"io"
	"slices"
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/cli/bench"

	"github.com/nats-io/nats.go/jetstream"
)

// TestBenchLeavesAServerAsItWas: on an external server the bench deletes what it made, and does not start if weir has
// streams there.
func TestBenchLeavesAServerAsItWas(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "THEIRS", Subjects: []string{"theirs"}}); err != nil {
		t.Fatal(err)
	}
	run := func() error {
		return bench.Run(t.Context(), "accept", bench.Options{
			Rounds: 1, Jobs: 40, Keys: 20, Body: 100, Seconds: 2, Durability: "always", Server: js.Conn().ConnectedUrl(), Dir: t.TempDir(),
			Out: io.Discard, Talk: io.Discard,
		})
	}
	names := func() (all []string) {
		streams := js.StreamNames(t.Context())
		for name := range streams.Name() {
			all = append(all, name)
		}
		if streams.Err() != nil {
			t.Fatal(streams.Err())
		}
		return all
	}
	if err := run(); err != nil {
		t.Fatal(err)
	}
	if got := names(); !slices.Equal(got, []string{"THEIRS"}) {
		t.Errorf("the server has the streams %q", got)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "WEIR_DEAD", Subjects: []string{"dead"}}); err != nil {
		t.Fatal(err)
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), "WEIR_DEAD") {
		t.Errorf("beside streams of weir: %v", err)
	}
	if got := names(); !slices.Equal(got, []string{"THEIRS", "WEIR_DEAD"}) {
		t.Errorf("the server has the streams %q", got)
	}
}

package migrate

import (
	"strings"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go/jetstream"
)

// TestSealNamesLateJobs checks that jobs which came to the source after it was copied are named, also if their stream
// was sealed by an earlier try, and that they get no company.
func TestSealNamesLateJobs(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	ctx := t.Context()
	for _, name := range []string{"WEIR_a_0", "WEIR_a_1", "WEIR_a_2"} {
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := js.Publish(ctx, name, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	m := &mover{from: &connect.Connection{Conn: js.Conn(), JetStream: js, At: "here"}}
	m.note.Last = map[string]uint64{"WEIR_a_0": 2, "WEIR_a_1": 3} // the stream 2 came after the copy
	for _, try := range []string{"first", "again"} {
		err := m.seal(ctx)
		if err == nil || !strings.Contains(err.Error(), "WEIR_a_0 from 3 on, WEIR_a_2 from 1 on") || strings.Contains(err.Error(), "WEIR_a_1") {
			t.Errorf("%s: %v", try, err)
		}
	}
	for _, name := range []string{"WEIR_a_0", "WEIR_a_1", "WEIR_a_2"} {
		if _, err := js.Publish(ctx, name, nil); err == nil {
			t.Errorf("%s is not sealed", name)
		}
	}
}

package torture

import (
	"testing"
	"time"

	"weir/cmd/weir-torture/internal/plan"
	"weir/ingest/await"
)

// TestProcessThatIsReadyAndEnds checks that a process counts as ready if it wrote its mark and then ended, even if the
// mark is empty and the first line is, too.
func TestProcessThatIsReadyAndEnds(t *testing.T) {
	s := &programs{&plan.Options{Dir: t.TempDir()}, &record{}}
	for _, mark := range []string{"up", ""} {
		p, err := s.start(program{name: "short", path: "/bin/sh", args: []string{"-c", "echo; echo up"}, mark: mark})
		if err != nil {
			t.Fatal(err)
		}
		await.Receive(t, "the end of the process", p.Exited())
		for range 20 { // a select chooses at random
			if err := p.awaitReady(t.Context(), time.Minute); err != nil {
				t.Fatalf("with the mark %q: %v", mark, err)
			}
		}
	}
}

package jobstory

import (
	"strings"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/ledger"
)

// TestCallTextNotBefore checks that the text says when the next call may be, if that was still to come. A job that was
// found after a crash may be called at once: its record has the smallest time.
func TestCallTextNotBefore(t *testing.T) {
	at := time.Date(2026, time.January, 2, 15, 4, 5, 0, time.UTC)
	for notBefore, want := range map[bucket.Micros]bool{
		0: false, 1: false, bucket.MicrosOf(at): false, bucket.MicrosOf(at.Add(time.Second)): true,
	} {
		c := &ledger.Record{Call: 1, Sent: true, Outcome: "retry", Started: at, Ended: at, NotBefore: notBefore}
		if text := callText(c); strings.Contains(text, "again not before 2026-01-02T15:04:06") != want || strings.Contains(text, "1970") {
			t.Errorf("with %d: %q", notBefore, text)
		}
	}
}

// TestStoryKeepsOnlyBodiesItShows checks that a search keeps no body of a result that it does not return.
func TestStoryKeepsOnlyBodiesItShows(t *testing.T) {
	t.Parallel()
	for bodies, want := range map[bool]map[int]int{false: {10: 0, MostBody: 0, MostBody + 1: 0}, true: {10: 10, MostBody: MostBody, MostBody + 1: 0}} {
		for size, kept := range want {
			s := &search{Options: Options{Job: "j", Bodies: bodies}, t: &Timeline{}}
			if err := s.answered(ledger.Result{API: "pay", Key: "k", Job: "j", Seq: 1, Body: make([]byte, size), Size: size}); err != nil {
				t.Fatal(err)
			}
			if r := s.t.Jobs[0].result; len(r.Body) != kept || r.Size != size {
				t.Errorf("with bodies %t, of %d bytes %d are kept", bodies, r.Size, len(r.Body))
			}
		}
	}
}

package queue

import (
	"errors"
	"testing"
)

// TestLookForDamageIsBounded checks that the search for lost messages holds a bounded number of messages, however long
// the queue is.
func TestLookForDamageIsBounded(t *testing.T) {
	p := newTestPartition(t)
	p.publishJobs(t, 0, 9)
	given := map[uint64]string{}
	if err := p.source.readGiven(t.Context(), 0, given, 5); !errors.Is(err, errTooMany) || len(given) != 5 {
		t.Errorf("%d messages are held, want 5: %v", len(given), err)
	}
	if err := p.source.readGiven(t.Context(), 5, given, 9); err != nil || len(given) != 9 {
		t.Errorf("%d messages are held, want 9: %v", len(given), err)
	}
}

package desk

import (
	"context"
	"strings"
	"testing"

	"weir/bucket/queue"
)

// TestCancellationWithoutAnEnd checks that a cancellation does not say that a job is cancelled whose end was not stored
// in time: if the partition is lost, its next owner calls the job.
func TestCancellationWithoutAnEnd(t *testing.T) {
	l, p := payLane(t)
	p.Open = true
	l.Sched.Push("k", 1, &p.Partition)
	late, end := context.WithCancel(t.Context())
	end()
	_, err := (&API{Lane: l}).cancel(late, queue.Entry{Key: "k", Seq: 1}, "test")
	if err == nil || !strings.Contains(err.Error(), "not known whether") {
		t.Errorf("a job whose end is not stored: %v", err)
	}
}

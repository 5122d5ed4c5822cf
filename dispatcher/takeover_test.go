package dispatcher

import (
	"context"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/ownership"
	"weir/ingest/await"
)

// TestLostPartitionDoesNotOutliveTheStop checks that a stopping worker does not wait for a job of a lost partition that
// can no longer end, for example because its outcome could not be stored in time.
func TestLostPartitionDoesNotOutliveTheStop(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{}, bucket.Rate{Count: 1, Per: time.Second, Burst: 1})
	hard, end := context.WithCancel(t.Context())
	p := w.newTenancy(0, ownership.Tenure{})
	p.hard, p.stopReading, p.stopMarkers = hard.Done(), func() {}, func() {}
	w.Mu.Lock()
	lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 1, &p.Partition), 1)).Settle()
	w.Mu.Unlock()
	p.lose()
	end()
	await.Return(t, "the end of the lost partition", w.Running.Wait)
}

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

// TestLateJobOfAClosedPartition checks that a job whose outcome cannot be stored any more, because its partition was
// closed in order, is left to the next owner. It does not hold the api.
func TestLateJobOfAClosedPartition(t *testing.T) {
	w := newLedgerLane(t, ledger.Bounds{}, bucket.Rate{Count: 1, Per: time.Second, Burst: 1})
	p := w.newTenancy(0, ownership.Tenure{})
	var err error
	if p.Markers, err = p.Bucket.Own(t.Context(), "weir-0"); err != nil {
		t.Fatal(err)
	}
	writing, stop := context.WithCancel(t.Context())
	p.stopReading, p.stopMarkers = func() {}, stop
	p.writing.Go(func() error { return p.Markers.Run(writing) })
	if err := await.Result(t, "the end of the partition", func() error { return p.close(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	w.Mu.Lock()
	j := lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 1, &p.Partition), 1))
	j.Settle()
	w.Mu.Unlock()
	await.Return(t, "the job", func() { w.settler.Rest(t.Context(), j, &ledger.Record{}, 1) })
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if v := w.Sched.At(w.Now()); v.ClosedUntil("k") != 0 || v.Unfinished() != 0 {
		t.Errorf("the api is held until %v, and %d jobs are left", v.ClosedUntil("k"), v.Unfinished())
	}
}

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

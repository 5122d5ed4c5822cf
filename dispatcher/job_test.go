package dispatcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// TestOrderBeforeTheStop checks that a slot that came before the worker stops is used. Otherwise the job's intent would
// stay behind, and a restart would take the job for called.
func TestOrderBeforeTheStop(t *testing.T) {
	for range 200 {
		w := bareWorker(dispatcherOf(Options{}), "")
		orders := make(chan order, 1)
		orders <- toCall
		close(w.stopped)
		if !w.caller.awaitSlot(t.Context(), &job{}, orders) {
			t.Fatal("a slot that had come was not used")
		}
		if w.caller.awaitSlot(t.Context(), &job{}, orders) {
			t.Fatal("a slot came after the stop")
		}
	}
}

// unstored returns a worker with one job whose outcome is to be stored, and a write that fails with each of writes in
// turn.
func unstored(writes ...error) (w *apiWorker, j *job, write func() error) {
	w = bareWorker(dispatcherOf(Options{Now: func() bucket.Micros { return 1 }}), "")
	w.s = schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	p := &partition{w: w.lane}
	p.Of = p
	j = jobLocked(w.s.Extract(w.s.Push("k", 1, &p.Partition), 1))
	j.Settle()
	return w, j, func() error {
		err := writes[0]
		writes = writes[1:]
		return err
	}
}

// TestPersistEnds checks that persist retries until the outcome is stored. It gives up if the job's partition is lost
// or the process has no time left, and then nothing else is stored for the job.
func TestPersistEnds(t *testing.T) {
	failed := errors.New("no space left")
	synctest.Test(t, func(t *testing.T) {
		w, j, write := unstored(stream.ErrNotNow, failed, failed, nil)
		if !w.settler.persist(t.Context(), "result", j, write) || w.s.At(w.now()).Unfinished() != 1 {
			t.Error("the fourth write succeeded, and the outcome is not stored")
		}
		w, j, write = unstored(failed, failed)
		j.part.lost.Store(true)
		if w.settler.persist(t.Context(), "result", j, write) || w.s.At(w.now()).Unfinished() != 0 {
			t.Error("an outcome was stored, or its job kept, of a partition that is somebody else's")
		}
		w, j, write = unstored(failed, failed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if w.settler.persist(ctx, "result", j, write) || w.s.At(w.now()).Unfinished() != 1 {
			t.Error("at the end of the process's time a job was let go of whose outcome is not stored")
		}
	})
}

// TestIDOfAJobInMemory checks that a job's id comes from the message that is kept ahead, or from the job near its call.
func TestIDOfAJobInMemory(t *testing.T) {
	p := &partition{cache: newReadAhead(queue.NewHoldings(1 << 20))}
	p.Of = p
	s := schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	q := s.Push("k", 3, &p.Partition)
	s.Push("k", 5, &p.Partition)
	s.Push("k", 7, &p.Partition)
	jobLocked(s.Extract(q, 3)).message = &ingest.Job{ID: "three"}
	p.cache.messages[5] = pack(queue.Entry{Header: map[string][]string{ingest.HeaderJobID: {"five"}}})
	for seq, want := range map[uint64]string{3: "three", 5: "five", 7: ""} {
		if id := idLocked(q, seq); id != want {
			t.Errorf("job %d is %q, want %q", seq, id, want)
		}
	}
}

// TestLostJobThatMayHaveBegun checks that a lost job is reported as not billed only if no job that it may be has an
// intent.
func TestLostJobThatMayHaveBegun(t *testing.T) {
	begun := map[uint64]bool{3: true, 4: false}
	for seq, want := range map[uint64]bool{3: true, 4: false, 5: false, 0: true} {
		if got := mayHaveBegun(seq, begun); got != want {
			t.Errorf("job %d: %v, want %v", seq, got, want)
		}
	}
	if mayHaveBegun(0, map[uint64]bool{4: false}) {
		t.Error("a job is taken for begun though no intent tells so")
	}
}

// TestLostPartitionMayCallNothing checks that a lost partition makes no calls, even while its lease is still valid.
func TestLostPartitionMayCallNothing(t *testing.T) {
	p := &partition{}
	if !p.mayCall() {
		t.Fatal("a partition that nobody else can own may not be called")
	}
	p.lost.Store(true)
	if p.mayCall() {
		t.Error("a partition that is lost may be called")
	}
}

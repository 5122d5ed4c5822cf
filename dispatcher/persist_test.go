package dispatcher

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/schedule"
)

// unstored returns a worker with one job whose outcome is to be stored, and a write that fails with each of writes in
// turn.
func unstored(writes ...error) (w *settler, j *job, write func() error) {
	l := &lane{env: &env{}, log: slog.New(slog.DiscardHandler), now: func() bucket.Micros { return 1 }, wake: make(chan struct{}, 1)}
	w = &settler{lane: l}
	w.s = schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	p := &partition{w: l}
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
		if !w.persist(t.Context(), "result", j, write) || w.s.At(w.now()).Unfinished() != 1 {
			t.Error("the fourth write succeeded, and the outcome is not stored")
		}
		w, j, write = unstored(failed, failed)
		j.part.lost.Store(true)
		if w.persist(t.Context(), "result", j, write) || w.s.At(w.now()).Unfinished() != 0 {
			t.Error("an outcome was stored, or its job kept, of a partition that is somebody else's")
		}
		w, j, write = unstored(failed, failed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if w.persist(ctx, "result", j, write) || w.s.At(w.now()).Unfinished() != 1 {
			t.Error("at the end of the process's time a job was let go of whose outcome is not stored")
		}
	})
}

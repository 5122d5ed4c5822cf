package settle

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// unstored returns a worker with one job whose outcome must be stored, and a write that returns each of the errors in
// writes in turn.
func unstored(writes ...error) (w *Settler, j *lane.Job, write func() error) {
	l := &lane.Lane{Env: &lane.Env{}, Log: slog.New(slog.DiscardHandler), Now: func() bucket.Micros { return 1 }, Wake: make(chan struct{}, 1)}
	w = &Settler{Lane: l}
	w.Sched = schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	p := &lane.Owned{W: l}
	p.Of = p
	j = lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 1, &p.Partition), 1))
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
		if !w.persist(t.Context(), "result", j, write) || w.Sched.At(w.Now()).Unfinished() != 1 {
			t.Error("the fourth write succeeded, and the outcome is not stored")
		}
		w, j, write = unstored(failed, failed)
		j.Part.Lost.Store(true)
		if w.persist(t.Context(), "result", j, write) || w.Sched.At(w.Now()).Unfinished() != 0 {
			t.Error("an outcome was stored, or its job kept, of a partition that another replica owns")
		}
		w, j, write = unstored(failed, failed)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if w.persist(ctx, "result", j, write) || w.Sched.At(w.Now()).Unfinished() != 1 {
			t.Error("at the end of the process's time a job was let go of whose outcome is not stored")
		}
	})
}

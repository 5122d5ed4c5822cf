package desk

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"

	"golang.org/x/sync/errgroup"
)

// CancelAnswer says what became of one job.
type CancelAnswer struct {
	Key     string             `json:"key"`
	Seq     uint64             `json:"seq"`
	Verdict schedule.Cancelled `json:"verdict,omitempty"`
	Outcome string             `json:"outcome,omitempty"` // of a job that ended meanwhile: done, or a letter's reason
}

// Cancellation names a job that must not be called. If Key is "", it names the jobs of all keys with this id.
type Cancellation struct{ API, Key, Job, Why string }

// Cancel ends the unfinished jobs that c names in the partitions owned here, unless they are being called. It returns
// when their letters are stored, or ctx ends.
func (d *Desk) Cancel(ctx context.Context, c Cancellation) ([]CancelAnswer, error) {
	answers := []CancelAnswer{}
	err := d.find(ctx, c, func(w *API, e queue.Entry) error {
		a, err := w.cancel(ctx, e, c.Why)
		answers = append(answers, a)
		return err
	})
	return answers, err
}

// Find is Cancel without cancelling. Its answers have no verdict.
func (d *Desk) Find(ctx context.Context, c Cancellation) ([]CancelAnswer, error) {
	answers := []CancelAnswer{}
	err := d.find(ctx, c, func(_ *API, e queue.Entry) error {
		answers = append(answers, CancelAnswer{Key: e.Key, Seq: e.Seq})
		return nil
	})
	return answers, err
}

// QueuedJob is an unfinished job as its owner sees it.
type QueuedJob struct {
	Key      string             `json:"key"`
	Seq      uint64             `json:"seq"`
	Stream   string             `json:"stream"`
	Accepted time.Time          `json:"accepted"`
	Depth    int                `json:"depth"`           // of its bucket
	State    *schedule.JobState `json:"state,omitempty"` // nil if it is not among the first MaxInspected of its bucket
	Waits    *schedule.Waiting  `json:"waits,omitempty"` // what its bucket waits for
}

// FindQueued is Find with the state of each job.
func (d *Desk) FindQueued(ctx context.Context, c Cancellation) ([]QueuedJob, error) {
	jobs := []QueuedJob{}
	err := d.find(ctx, c, func(w *API, e queue.Entry) error {
		jobs = append(jobs, w.inspectJob(e))
		return nil
	})
	return jobs, err
}

// inspectJob returns the state of a job that is in its stream.
func (w *API) inspectJob(e queue.Entry) QueuedJob {
	j := QueuedJob{Key: e.Key, Seq: e.Seq, Stream: w.Queue.Partition(e.Key).Name(), Accepted: e.Time.UTC()}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	q := w.Sched.Queues.Find(e.Key)
	if q == nil || q.Empty() {
		return j
	}
	state := w.Sched.At(w.Now()).Inspect(q)
	j.Depth, j.Waits = state.Depth, &state.Waits
	for _, s := range w.Sched.At(w.Now()).FirstJobs(q, MaxInspected) {
		if s.Seq == e.Seq {
			j.State = &s
		}
	}
	return j
}

// foundAtOnce is how many partitions are searched at the same time.
const foundAtOnce = 16

func (d *Desk) find(ctx context.Context, c Cancellation, take func(w *API, e queue.Entry) error) error {
	w := d.api(c.API)
	if w == nil {
		return lane.ErrNoAPI
	}
	found := make([][]queue.Entry, len(w.Partitions))
	var looking errgroup.Group
	looking.SetLimit(foundAtOnce)
	for number := range w.Partitions {
		p := w.OwnedPartition(number) // the caller asks the other replicas for their partitions
		if p == nil || c.Key != "" && w.Queue.Partition(c.Key) != p.Bucket {
			continue
		}
		looking.Go(func() (err error) {
			found[number], err = p.Bucket.Find(ctx, c.Job, c.Key)
			return err
		})
	}
	failed := looking.Wait() // the jobs that were found in other partitions still count
	for _, e := range slices.Concat(found...) {
		if err := take(w, e); err != nil {
			return err
		}
	}
	return failed
}

// cancel cancels one job and blocks until it has ended.
func (w *API) cancel(ctx context.Context, e queue.Entry, why string) (CancelAnswer, error) {
	a := CancelAnswer{Key: e.Key, Seq: e.Seq}
	var j *lane.Job
	w.Update(func(s *schedule.Schedule) {
		var found *schedule.Job
		if found, a.Verdict = s.Cancel(e.Key, e.Seq); found != nil {
			if j = lane.JobLocked(found); j.Ended == nil {
				j.Ended, j.Why = make(chan struct{}), why
			}
		}
		if p := w.Partitions[w.Queue.Partition(e.Key).Number()]; p != nil && p.Reading && a.Verdict == schedule.CancelGone {
			a.Verdict = schedule.CancelReading
		}
	})
	if j == nil {
		return a, nil
	}
	select {
	case <-j.Ended:
	case <-ctx.Done():
		return a, fmt.Errorf("it is not known whether job %d of %s/%s is cancelled, because its end is not stored yet; ask again: %w", e.Seq, w.Name, e.Key, context.Cause(ctx))
	}
	w.Mu.Lock()
	defer w.Mu.Unlock()
	if a.Outcome = j.Outcome; j.Outcome != string(deadletter.Cancelled) {
		a.Verdict = schedule.CancelGone
	}
	return a, nil
}

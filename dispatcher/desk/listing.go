package desk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/bucket/stream"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"golang.org/x/sync/errgroup"
)

// UnfinishedJob is a job that waits, is being called or is polled.
type UnfinishedJob struct {
	API      string            `json:"api"`
	Key      string            `json:"key"`
	Job      string            `json:"job"` // "" if it could not be read
	Stream   string            `json:"stream"`
	Seq      uint64            `json:"seq"`
	At       time.Time         `json:"at"` // when it was accepted or, if it is being called, when its call began
	Accepted time.Time         `json:"accepted,omitzero"`
	Phase    schedule.JobPhase `json:"phase"`
	Calls    int               `json:"calls"`
}

// Calling reports whether the job is being called, or its outcome is being stored.
func (j *UnfinishedJob) Calling() bool {
	return j.Phase == schedule.JobCalling || j.Phase == schedule.JobEnding
}

// UnfinishedWanted chooses unfinished jobs of an api.
type UnfinishedWanted struct {
	Waiting, Calling bool
	Polled           bool      // jobs that the api has accepted, whose operations weir polls
	Key              string    // "": of all keys
	Part             string    // of the job's id; "": jobs with any id
	Since            time.Time // only jobs that came to their state at this time or later
	UpTo             time.Time // only jobs that came to their state at this time or before; zero: all
	// Behind reports whether a job belongs to the part of the list that is asked for; nil: every job does.
	Behind func(j *UnfinishedJob) bool
	Limit  int // most jobs of each partition
	Most   int // most headers that are read in each partition
}

// Unfinished are some unfinished jobs.
type Unfinished struct {
	Jobs []UnfinishedJob
	// Reached is how far back the list goes, if reading further back would have taken too long; otherwise it is zero.
	// Jobs from before Reached are not listed.
	Reached time.Time
}

// listedAtOnce is how many partitions of an api are read at the same time.
const listedAtOnce = 4

// Unfinished returns unfinished jobs of an api in the partitions owned here: from each partition the newest ones, in no
// order. It looks at every key to find the jobs that are being called, and reads the headers of waiting jobs. If some
// partitions cannot be read, it returns an error and the jobs of the others.
func (d *Desk) Unfinished(ctx context.Context, api string, wanted UnfinishedWanted) (Unfinished, error) {
	w := d.api(api)
	if w == nil {
		return Unfinished{}, lane.ErrNoAPI
	}
	var found Unfinished
	var err error
	if wanted.Waiting || wanted.Polled {
		found, err = w.waiting(ctx, &wanted)
	}
	if wanted.Calling {
		found.add(w.beingCalled(&wanted)) // last, so that a job whose call begins meanwhile is in one of the lists
	}
	return found, err
}

// add adds jobs that are being called. If such a job is in u as waiting, its call has begun meanwhile, and add removes
// it there.
func (u *Unfinished) add(calling []UnfinishedJob) {
	type place struct {
		stream string
		seq    uint64
	}
	began := make(map[place]bool, len(calling))
	for i := range calling {
		began[place{calling[i].Stream, calling[i].Seq}] = true
	}
	u.Jobs = append(slices.DeleteFunc(u.Jobs, func(j UnfinishedJob) bool { return began[place{j.Stream, j.Seq}] }), calling...)
}

// waiting returns jobs that wait or are polled.
func (w *API) waiting(ctx context.Context, wanted *UnfinishedWanted) (found Unfinished, err error) {
	var mu sync.Mutex // guards found
	var reading errgroup.Group
	reading.SetLimit(listedAtOnce)
	for number := range w.Partitions {
		p := w.OwnedPartition(number) // the caller asks the other replicas for their partitions
		if p == nil || p.Bucket.Waiting() == 0 || wanted.Key != "" && w.Queue.Partition(wanted.Key) != p.Bucket {
			continue
		}
		reading.Go(func() error {
			jobs, reach, err := newest(ctx, p, wanted)
			mu.Lock()
			defer mu.Unlock()
			found.Jobs = append(found.Jobs, jobs...)
			if len(jobs) < wanted.Limit && !reach.All && reach.From.After(found.Reached) {
				found.Reached = reach.From
			}
			return err
		})
	}
	err = reading.Wait()
	return found, err
}

// newest returns the partition's newest jobs that wait or are polled, at most wanted.Limit.
func newest(ctx context.Context, p *lane.Owned, wanted *UnfinishedWanted) (jobs []UnfinishedJob, reach stream.Reach, err error) {
	n := queue.NewestJobs{Key: wanted.Key, Since: wanted.Since, UpTo: wanted.UpTo, Most: wanted.Most}
	reach, err = p.Bucket.Newest(ctx, n, func(e queue.Entry, known bool) error {
		j := UnfinishedJob{
			API: p.W.Name, Key: e.Key, Job: e.Header.Get(ingest.HeaderJobID), Stream: p.Bucket.Name(), Seq: e.Seq, At: e.Time.UTC(), Accepted: e.Time.UTC(),
		}
		j.Phase, j.Calls = phaseOf(p, &e, known)
		wants := wanted.Waiting
		if j.Phase == schedule.JobPolling {
			wants = wanted.Polled
		}
		if j.Phase == "" || j.Calling() || !wants || !wanted.takes(&j) {
			return nil
		}
		if jobs = append(jobs, j); len(jobs) == wanted.Limit {
			return stream.ErrEnough
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("list the jobs in %s: %w", p.Bucket.Name(), err)
	}
	return jobs, reach, err
}

// phaseOf returns the phase of a job that is in the partition's stream, and the number of its calls. The phase is "" if
// the job has ended. known says that the owner's reader has delivered the job.
func phaseOf(p *lane.Owned, e *queue.Entry, known bool) (schedule.JobPhase, int) {
	p.W.Mu.Lock()
	defer p.W.Mu.Unlock()
	q := p.W.Sched.Queues.Find(e.Key)
	if q != nil {
		if phase, calls := q.PhaseOf(e.Seq); phase != "" {
			return phase, calls
		}
	}
	switch notBefore := ingest.NotBeforeOf(e.Header, e.Time); {
	case p.W.Sched.Queues.Own(bucket.MicrosOf(notBefore)) > p.W.Now() && (q != nil || !known || p.Reading):
		return schedule.JobNotBefore, 0
	case !known || p.Reading:
		return schedule.JobWaits, 0
	}
	return "", 0
}

func (u *UnfinishedWanted) takes(j *UnfinishedJob) bool {
	return strings.Contains(j.Job, u.Part) && (u.Since.IsZero() || !j.At.Before(u.Since)) && (u.UpTo.IsZero() || !j.At.After(u.UpTo)) &&
		(u.Behind == nil || u.Behind(j))
}

// beingCalled returns the jobs that are being called here, of which there are never more than schedule.MaxCalls, and
// the jobs whose outcomes are being stored.
func (w *API) beingCalled(wanted *UnfinishedWanted) (jobs []UnfinishedJob) {
	take := func(q *schedule.KeyQueue) {
		for state, began := range q.Jobs.Running {
			j := UnfinishedJob{API: w.Name, Key: q.Key, Stream: lane.PartitionOf(q).Bucket.Name(), Seq: state.Seq, At: began.Time(), Phase: state.Phase, Calls: state.Calls}
			if of, begun := q.Job(state.Seq).Of.(*lane.Job); begun {
				if j.Job = of.ID; of.Message != nil {
					j.Job = of.Message.ID
				}
				if of.Accepted > 0 {
					j.Accepted = of.Accepted.Time()
				}
			}
			if wanted.takes(&j) {
				jobs = append(jobs, j)
			}
		}
	}
	w.Mu.Lock()
	if wanted.Key == "" {
		all := w.Sched.Queues.All()
		w.Mu.Unlock()
		w.EachLocked(all, take)
		return jobs
	}
	defer w.Mu.Unlock()
	if q := w.Sched.Queues.Find(wanted.Key); q != nil {
		take(q)
	}
	return jobs
}

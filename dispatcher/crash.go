package dispatcher

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/ingest"
)

// mostCrashes is how often the handling of one job may crash before it is parked.
const mostCrashes = 2

// crash is a panic while one job was handled. It affects only that job.
type crash struct {
	cause any
	stack []byte
}

func (c *crash) Error() string { return fmt.Sprintf("weir crashed over it: %v", c.cause) }

// contained runs code that depends on one job's own data, and returns its panic. Do not use it around code that holds a
// lock or changes what jobs share: a panic there must end the process.
func contained(what func()) (c *crash) {
	defer func() {
		if cause := recover(); cause != nil {
			c = &crash{cause, debug.Stack()}
		}
	}()
	what()
	return nil
}

// read parses a job's message, and computes what its call costs. If parsing panics, the job is parked at once: it would
// panic each time, and the job was not called.
func (w *caller) read(j *job, e queue.Entry) (refusal *ingest.Refusal, err error) {
	var job *ingest.Job
	var costs []int64
	c := contained(func() {
		job, refusal = ingest.Restore(ingest.Message{Key: j.Queue.Key, Header: e.Header, Body: e.Data}, j.terms.api.Rule, e.Time)
		if refusal == nil {
			costs, err = j.terms.costs(job)
		}
	})
	if c != nil {
		w.tellCrash(j, c)
		job = &ingest.Job{API: w.name, Key: j.Queue.Key, ID: e.Header.Get(ingest.HeaderJobID), Header: e.Header, Body: e.Data, Trace: ingest.TraceOf(e.Header)}
		err = c
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	j.message, j.accepted, j.Costs = job, bucket.MicrosOf(e.Time), costs
	j.doubtRestoredLocked()
	if !job.Deadline.IsZero() {
		j.Deadline = bucket.MicrosOf(job.Deadline)
	}
	// The job was redriven: its calls before that carried this key.
	if keyed := job.Header.Get(deadletter.HeaderKeyed); keyed != "" && job.Redrives > 0 {
		j.doubt.recall(deadletter.Billed(job.Header.Get(deadletter.HeaderBilled)), keyed)
	}
	return refusal, err
}

// send makes a job's call with the message m. If the call panics, it counts as sent, because it may have been.
func (w *caller) send(ctx context.Context, j *job, m *ingest.Job, h httpcall.Hooks) httpcall.Response {
	r := httpcall.Response{Started: time.Now()}
	if c := contained(func() { r = j.terms.call.Call(ctx, m, h) }); c != nil {
		w.tellCrash(j, c)
		j.crashes++
		r = httpcall.Response{Sent: true, Err: c, Started: r.Started, Ended: time.Now()}
	}
	return r
}

// crashed turns a retry into the job's end if weir has crashed over the job too often.
func (j *job) crashed(o httpcall.Outcome) httpcall.Outcome {
	if o.Verdict == httpcall.Again && j.crashes >= mostCrashes {
		o.Verdict, o.Reason = httpcall.Dead, deadletter.Exhausted
		o.Detail = fmt.Sprintf("given up as poison after %d crashes, the last: %s", j.crashes, o.Detail)
	}
	return o
}

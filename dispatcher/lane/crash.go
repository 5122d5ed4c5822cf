package lane

import (
	"fmt"
	"runtime/debug"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/ingest"
)

// mostCrashes is how often weir may crash over one job before the job is parked.
const mostCrashes = 2

// Crash is a panic while one job was handled. It affects only that job.
type Crash struct {
	cause any
	stack []byte
}

func (c *Crash) Error() string { return fmt.Sprintf("weir crashed over it: %v", c.cause) }

// Contained runs code that depends on one job's own data. It returns the code's panic, nil if there was none. The code
// must not hold a lock or change what jobs share: a panic there must end the process.
func Contained(what func()) (c *Crash) {
	defer func() {
		if cause := recover(); cause != nil {
			c = &Crash{cause, debug.Stack()}
		}
	}()
	what()
	return nil
}

// Restore reads a job's message by a rule. If reading panics, Restore logs the panic and returns it, with a job that
// has what the letter needs.
func (l *Lane) Restore(j *Job, e queue.Entry, rule *ingest.Rule) (job *ingest.Job, refusal *ingest.Refusal, c *Crash) {
	c = Contained(func() {
		job, refusal = ingest.Restore(ingest.Message{Key: j.Queue.Key, Header: e.Header, Body: e.Data}, rule, e.Time)
	})
	if c != nil {
		l.TellCrash(j, c)
		job = &ingest.Job{
			API: l.Name, Key: j.Queue.Key, ID: e.Header.Get(ingest.HeaderJobID), Header: e.Header, Body: e.Data, Trace: ingest.TraceOf(e.Header),
		}
	}
	return job, refusal, c
}

// Crashed turns a retry into the job's end if weir has crashed over the job too often.
func (j *Job) Crashed(o httpcall.Outcome) httpcall.Outcome {
	if o.Verdict == httpcall.Again && j.Crashes >= mostCrashes {
		o.Verdict, o.Reason = httpcall.Dead, deadletter.Exhausted
		o.Detail = fmt.Sprintf("given up as poison after %d crashes, the last: %s", j.Crashes, o.Detail)
	}
	return o
}

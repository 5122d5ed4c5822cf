package lane

import (
	"fmt"
	"runtime/debug"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// mostCrashes is how often the handling of one job may crash before it is parked.
const mostCrashes = 2

// Crash is a panic while one job was handled. It affects only that job.
type Crash struct {
	cause any
	stack []byte
}

func (c *Crash) Error() string { return fmt.Sprintf("weir crashed over it: %v", c.cause) }

// Contained runs code that depends on one job's own data, and returns its panic. Do not use it around code that holds a
// lock or changes what jobs share: a panic there must end the process.
func Contained(what func()) (c *Crash) {
	defer func() {
		if cause := recover(); cause != nil {
			c = &Crash{cause, debug.Stack()}
		}
	}()
	what()
	return nil
}

// Crashed turns a retry into the job's end if weir has crashed over the job too often.
func (j *Job) Crashed(o httpcall.Outcome) httpcall.Outcome {
	if o.Verdict == httpcall.Again && j.Crashes >= mostCrashes {
		o.Verdict, o.Reason = httpcall.Dead, deadletter.Exhausted
		o.Detail = fmt.Sprintf("given up as poison after %d crashes, the last: %s", j.Crashes, o.Detail)
	}
	return o
}

package lane

import (
	"fmt"
	"time"

	"weir/bucket"
)

// While a job waits, the schedule knows why. When the job is called, the ledger's record names the cause that delayed
// it longest. If the job ends without a call, its letter names that cause.

// Since returns when a job began to wait for its next call, as its producer sees it; 0 if that is unknown after a
// restart. The job's message must be loaded.
func (j *Job) Since() bucket.Micros {
	if j.Calls > 0 {
		return j.Rested
	}
	return j.Came()
}

// Came returns when a job's wait for its first call began. The job's message must be loaded.
func (j *Job) Came() bucket.Micros {
	if at := j.Message.NotBefore; !at.IsZero() {
		return max(j.Accepted, bucket.MicrosOf(at)) // the producer asked for the time until NotBefore: it is no wait
	}
	return j.Accepted
}

// leastWait is the shortest wait that letters mention.
const leastWait = 100 * time.Millisecond

// Waited returns text for the end of a letter's detail. It says how long a job that ends without a call has waited, and
// for what. It is "" if the job did not wait, or it is unknown since when.
func (w *Lane) Waited(j *Job) string {
	since := j.Since()
	w.Mu.Lock()
	now := w.Now()
	h := w.Sched.At(now).HoldupOf(j.Job, since)
	w.Mu.Unlock()
	wait := since.Until(now)
	if since == 0 || wait < leastWait {
		return ""
	}
	text := "; it had waited " + roundly(wait)
	if j.Calls > 0 {
		text += " since its last call"
	}
	if h.For == "" {
		return text + ", for its key's rate and the jobs before it"
	}
	return text + fmt.Sprintf(", %s of it %s", roundly(h.Took), h)
}

// roundly formats a duration for letters.
func roundly(d time.Duration) string {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

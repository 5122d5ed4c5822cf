package dispatcher

import (
	"fmt"
	"time"

	"weir/bucket"
)

// While a job waits, the schedule knows the cause. When the job is called, the ledger's record names the cause that
// delayed it longest. If the job ends without a call, its letter names it.

// since returns since when a job has waited for its next call, from its producer's view, or 0 if that is unknown after
// a restart. Its message must be loaded.
func (j *job) since() bucket.Micros {
	switch at := j.message.NotBefore; {
	case j.Calls > 0:
		return j.rested
	case !at.IsZero():
		return max(j.accepted, bucket.MicrosOf(at)) // the time until NotBefore is no wait: the producer asked for it
	}
	return j.accepted
}

// leastWait is the shortest wait that letters mention.
const leastWait = 100 * time.Millisecond

// waited returns text for the end of a letter's detail: how long a job that ends without a call waited, and for what.
// It returns "" if the job did not wait or the cause is unknown.
func (w *lane) waited(j *job) string {
	since := j.since()
	w.mu.Lock()
	now := w.now()
	h := w.s.At(now).HoldupOf(j.Job, since)
	w.mu.Unlock()
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

// overdrawn says which budget was used up when the job needed it.
func (j *job) overdrawn() string { return "the budget " + j.Refused + " is spent" }

// impassable says which limit a job can never pass.
func (j *job) impassable() string { return "its cost can never pass limit " + j.Refused }

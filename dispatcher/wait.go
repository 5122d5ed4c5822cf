package dispatcher

import (
	"fmt"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// While a job waits the schedule tells what for. When it is called the ledger's record says what kept it for longest, and when it is not,
// its letter does.

// since is from when on a job has waited for its next call, as far as its producer goes; 0 where nobody knows, after a restart. Its message
// must be loaded.
func (j *job) since() bucket.Micros {
	switch at := j.message.NotBefore; {
	case j.Calls > 0:
		return j.rested
	case !at.IsZero():
		return max(j.accepted, bucket.MicrosOf(at)) // who asked to wait did not wait until then
	}
	return j.accepted
}

// noteHoldupLocked notes what kept a job from the call that begins now. That a retry waits is its own doing.
func (w *apiWorker) noteHoldupLocked(j *job) {
	if j.holdup = w.s.HoldupOf(j.Job, j.since(), w.now()); j.holdup.For == schedule.WaitRetry {
		j.holdup = schedule.Holdup{}
	}
}

// leastWait is from how long on a wait is told.
const leastWait = 100 * time.Millisecond

// waited says how long a job has waited that ends without the call, and what for: behind what ends it. "": it did not wait, or nobody
// knows.
func (w *apiWorker) waited(j *job) string {
	since := j.since()
	w.mu.Lock()
	now := w.now()
	h := w.s.HoldupOf(j.Job, since, now)
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

// roundly is a duration as letters tell it.
func roundly(d time.Duration) string {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// overdrawn says which budget a job found spent.
func (j *job) overdrawn() string { return "the budget " + j.Refused + " is spent" }

// impassable says which limit a job can never pass.
func (j *job) impassable() string { return "its cost can never pass limit " + j.Refused }

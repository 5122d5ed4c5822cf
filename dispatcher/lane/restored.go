package lane

import (
	"fmt"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
)

// Restoration says that the streams were put back from a backup. No queue, ledger or result knows of the calls between
// From and At.
//
//   - A job without an end in the backup may have been called since. It is called again under its idempotency key.
//     If the api takes no keys, or takes packs, the job becomes a letter unknown: the key of a pack is not known then.
//     The job stays in doubt as long as it is in its queue, over restarts.
//   - Every key waits until a bucket that was full at At has drained.
//   - A limit of all keys counts as used up until every period that contains At is over (Hold).
type Restoration struct {
	From, At time.Time // From is the time of the newest record in the backup's ledger, zero if it has none
	// Until holds the last sequence of each queue's stream in the backup, by the stream's name. Later sequences came
	// after At.
	Until map[string]uint64
	// Counted says that an operator wants limits to go on from their present counts, in spite of the restoration.
	Counted bool
}

// Detail returns what letters say about the restoration.
func (r *Restoration) Detail() string {
	from := "a backup without any call"
	if !r.From.IsZero() {
		from = "a backup whose last call is of " + r.From.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("restored: the queue is %s, put back at %s; it is unknown whether this job was called in between: ask the api before you redrive it",
		from, r.At.UTC().Format(time.RFC3339))
}

// IsRestored reports whether a job was in a backup that was put back.
func (p *Owned) IsRestored(seq uint64) bool { return p.Restored != 0 && seq <= p.Restored }

// MayBeCalled reports whether a restored job may have been called after its backup was made and before the backup was
// put back. If the job was not due in that time, it was not called.
func (p *Owned) MayBeCalled(seq uint64, notBefore time.Time) bool {
	return p.IsRestored(seq) && !notBefore.After(p.W.Env.Restored.At)
}

// RecallLocked adds to a job's doubt what is known of calls before the job's message was stored or restored. A restored
// job may have been called after its backup was made. The calls of a redriven job carried the key that its message
// names.
func (j *Job) RecallLocked() {
	m := j.Message
	switch restored := j.Part.MayBeCalled(j.Seq, m.NotBefore); {
	case restored && j.Terms.API.Pack != nil:
		j.Doubt.Add(deadletter.BilledUnknown, "") // it is unknown in which packs it was called, and under which keys
	case restored:
		j.Doubt.Recall(deadletter.BilledUnknown, "")
	}
	if keyed := m.Header.Get(deadletter.HeaderKeyed); keyed != "" && m.Redrives > 0 {
		j.Doubt.Recall(deadletter.Billed(m.Header.Get(deadletter.HeaderBilled)), keyed)
	}
}

// InDoubt returns the detail of the letter for a job whose outcome is unknown. It says that the job is from a backup,
// or why an api with the configuration api would treat another call as a new one.
func (j *Job) InDoubt(api *httpcall.API) string {
	if j.Part.IsRestored(j.Seq) {
		return j.Part.W.Env.Restored.Detail()
	}
	return doubtDetail + j.WhyNot(api)
}

// Hold returns until when an api must be held after the restoration, and why. Until then the present period of some
// shared limit may contain a call that the ledger does not know. held is false if no hold is needed.
func (r *Restoration) Hold(rules *bucket.Rules, now bucket.Micros) (h schedule.HoldChange, held bool) {
	if r == nil || r.Counted {
		return h, false
	}
	until, limit := r.unknownUntil(rules, min(bucket.MicrosOf(r.At), now)) // At may be by a clock that is behind
	if until <= now {
		return h, false
	}
	return schedule.HoldChange{Until: until, Why: fmt.Sprintf("the store was restored at %s: limit %s counts as used up until its period is over, because the calls before are unknown",
		r.At.UTC().Format(time.RFC3339), limit)}, true
}

// unknownUntil returns until when a period of some limit may contain a call that was made before at. limit is the limit
// for which that time is latest. unknownUntil returns 0 if no limit has such a period.
func (r *Restoration) unknownUntil(rules *bucket.Rules, at bucket.Micros) (until bucket.Micros, limit string) {
	for i := range rules.Shared {
		l := &rules.Shared[i]
		if l.Shadow {
			continue
		}
		over, jitter := at, rules.By(l).Jitter
		switch l.Kind() {
		case bucket.KindRate:
			// How long the whole burst takes to refill.
			filled := time.Duration(float64(l.Rate.Per) * float64(l.Rate.Burst) / float64(l.Rate.Count))
			over = at.Add(max(l.Rate.Per, filled) + jitter)
		case bucket.KindQuota:
			over = l.Quota.Over(at, jitter)
		case bucket.KindBudget:
			over = l.Budget.Over(at, jitter)
		case bucket.KindInFlight:
		}
		if over > until {
			until, limit = over, l.Name
		}
	}
	if until <= at {
		return 0, ""
	}
	return until, limit
}

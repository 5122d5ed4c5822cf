package dispatcher

import (
	"fmt"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// Restoration says that the streams were put back from a backup: what was called between From and At is in no queue, ledger or result.
//
//   - A job of the backup that has no end there may have been called since. It is called again under its idempotency key, or becomes a
//     letter unknown where the api has none. That its end is not known holds for as long as it is in its queue, over restarts.
//   - Every key waits until a bucket that was full at At has drained.
//   - A limit of all keys counts as used up until every period is over that holds At (hold).
type Restoration struct {
	From, At time.Time // From is that of the newest record in the ledger, or zero
	// Until are the last sequences of the backup, by the names of queues' streams. What stands behind came after At.
	Until map[string]uint64
	// Counted says that the limits go by what is counted all the same: by an operator's word.
	Counted bool
}

// detail is what letters say of it.
func (r *Restoration) detail() string {
	from := "a backup without any call"
	if !r.From.IsZero() {
		from = "a backup whose last call is of " + r.From.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("restored: the queue is %s, put back at %s; whether this job was called in between nobody knows: ask the api before it is redriven",
		from, r.At.UTC().Format(time.RFC3339))
}

// isRestored reports whether a job was in a backup that was put back.
func (p *partition) isRestored(seq uint64) bool { return p.restored != 0 && seq <= p.restored }

// mayBeCalled reports whether a job that is not to be called before a time may have been called all the same before a backup was put back: not
// if that time came later.
func (d *Dispatcher) mayBeCalled(p *partition, seq uint64, notBefore time.Time) bool {
	return p.isRestored(seq) && !notBefore.After(d.opts.Restored.At)
}

// expectLocked notes the deadline of a job that was read, if it has one: it may pass while the job cannot be called, and so is
// not loaded. Of a restored job that may not be called again it has passed: such jobs become letters a few at a time, whatever holds.
func (p *partition) expectLocked(e queue.Entry) {
	if p.w.terms.api.Idempotency == nil && p.w.d.mayBeCalled(p, e.Seq, ingest.NotBeforeOf(e.Header, e.Time)) {
		p.Expect(e.Seq, 1)
	} else if at := ingest.DeadlineOf(e.Header, e.Time); !at.IsZero() {
		p.Expect(e.Seq, bucket.MicrosOf(at))
	}
}

// doubtRestoredLocked has a restored job be one that may have been called.
func (j *job) doubtRestoredLocked(d *Dispatcher) {
	if d.mayBeCalled(j.part, j.Seq, j.message.NotBefore) {
		j.doubt.recall(deadletter.BilledUnknown, "")
	}
}

// inDoubt is why a job becomes a letter of which nobody knows what came of it.
func (j *job) inDoubt() string {
	if j.part.isRestored(j.Seq) {
		return j.part.w.d.opts.Restored.detail()
	}
	return doubtDetail
}

// hold is how long an api is held until no period of a limit of all keys holds a call of which the ledger does not know, and why; held is
// false where it need not be.
func (r *Restoration) hold(rules *bucket.Rules, now bucket.Micros) (h schedule.HoldChange, held bool) {
	if r == nil || r.Counted {
		return h, false
	}
	until, limit := r.unknownUntil(rules, min(bucket.MicrosOf(r.At), now)) // At is by a clock that is behind now, perhaps
	if until <= now {
		return h, false
	}
	return schedule.HoldChange{Until: until, Why: fmt.Sprintf("the store was restored at %s: limit %s counts as used up until its period is over, since nobody knows what was called before",
		r.At.UTC().Format(time.RFC3339), limit)}, true
}

// unknownUntil is until when a limit's period holds a call that may have been made before at, of all limits the last, and which limit that
// is. 0: no limit has a period.
func (r *Restoration) unknownUntil(rules *bucket.Rules, at bucket.Micros) (until bucket.Micros, limit string) {
	for i := range rules.Shared {
		l := &rules.Shared[i]
		if l.Shadow {
			continue
		}
		over := at
		switch l.Kind() {
		case bucket.KindRate:
			filled := time.Duration(float64(l.Rate.Per) * float64(l.Rate.Burst) / float64(l.Rate.Count)) // a bucket that was empty
			over = at.Add(max(l.Rate.Per, filled) + rules.Jitter)
		case bucket.KindQuota:
			over = l.Quota.Over(at, rules.Jitter)
		case bucket.KindBudget:
			over = l.Budget.Over(at, rules.Jitter)
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

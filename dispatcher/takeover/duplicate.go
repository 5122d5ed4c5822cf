package takeover

import (
	"context"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// A server that restarts forgets the ids of deleted messages. If a producer then sends an ended job again, the stream
// takes the copy as a new job, whichever replica's intake stores it. The partition's owner recognizes the copy, because
// it knows that the first job has ended: it has ended that job itself, or has read in the ledger that an earlier owner
// did. A job's message is deleted only after its record is stored and the owner knows of it. So when the owner reads a
// copy, it always knows the first job already.

// The owner judges a copy by the dedupe setting that was in force when the copy came, because the setting may have
// changed since (queue.Dedupe). If it cannot tell which setting was in force, it neither drops the job nor calls it,
// but makes it a letter.

// meetDuplicateLocked ends a job that was just read if the job is, or may be, a copy of an ended job. It returns true
// if it ended the job.
func (p *reader) meetDuplicateLocked(ctx context.Context, e queue.Entry) bool {
	likeness := p.Bucket.Duplicate(e)
	switch likeness {
	case queue.Same:
		p.logDuplicate(e)
		p.W.Metrics.Finished.Count(lane.Duplicate)
		p.Bucket.Finish(e.Key, e.Seq)
		return true
	case queue.Another:
		return false
	}
	q := p.pushLocked(e)
	p.parkDuplicateLocked(ctx, q, e.Seq)
	return true
}

// resumeDuplicateLocked ends a found job that was never called if the job is, or may be, a copy of an ended job.
// Otherwise it does nothing.
func (p *reader) resumeDuplicateLocked(ctx context.Context, q *schedule.KeyQueue, e queue.Entry) {
	switch p.Bucket.Duplicate(e) {
	case queue.Same:
		j := lane.JobLocked(p.W.Sched.Extract(q, e.Seq))
		j.Bind(p.W.Terms)
		j.Settle()
		p.logDuplicate(e)
		p.W.Running.Go(func() { p.settler.Finish(j, lane.Duplicate) })
	case queue.InDoubt: // an idempotency key would not help: the ended job may have had another one
		p.parkDuplicateLocked(ctx, q, e.Seq)
	}
}

// parkDuplicateLocked makes a letter of a job of which it is not known whether it is a copy of an ended job.
func (p *reader) parkDuplicateLocked(ctx context.Context, q *schedule.KeyQueue, seq uint64) {
	j := lane.JobLocked(p.W.Sched.Extract(q, seq))
	j.Bind(p.W.Terms)
	j.Settle()
	p.W.Running.Go(func() {
		if p.settler.Reload(ctx, j) {
			j.Doubt.Billed = j.Doubt.Billed.Worst(deadletter.BilledUnknown)
			p.settler.Bury(ctx, j, deadletter.Unknown, duplicateDetail, nil)
		}
	})
}

const duplicateDetail = "a job with this id has ended, and dedupe was changed about the time this one came: whether it is the same job cannot be told, and it was not called"

func (p *reader) logDuplicate(e queue.Entry) {
	ingest.TraceOf(e.Header).Log(p.W.Log).Warn("an ended job is in its queue again, because the stream had forgotten its id or its deletion; it is not called again",
		"key", e.Key, "job_id", e.Header.Get(ingest.HeaderJobID), "seq", e.Seq)
}

package dispatcher

import (
	"context"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// Duplicate is the outcome of a job that stood in its queue a second time and was not called again.
const Duplicate = "duplicate"

// Deleted is the outcome of a job whose message somebody has deleted.
const Deleted = "deleted"

// A server that restarts forgets the ids of deleted messages: a job that has ended and is sent again is a new one to its
// stream, whichever replica takes it. The partition's owner knows better. It has ended the job itself, or has read in the
// ledger what the owners before had ended; a record stands there before its message is deleted, and the owner knows of it
// before that. So no copy that the stream took can be read before its first is known.

// What it was to JetStream when it came is what counts: the configuration may have changed since for how long ids are known
// (queue.Dedupe). Where that cannot be told the job is neither dropped nor called, but becomes a letter.

// rememberEnd notes that a job has ended, for as long as its id may be known.
func (j *job) rememberEnd() {
	if j.message == nil || j.message.DedupeID == "" || j.accepted == 0 {
		return // its record is what it was ended by, and was read with the ledger
	}
	j.part.w.queue.Ended(queue.Finished{Key: j.Queue.Key, DedupeID: j.message.DedupeID, Seq: j.Seq, Accepted: j.accepted.Time()})
}

// meetDuplicateLocked deals with a job that was just read if it is one that has ended, or may be, and reports whether it did.
func (p *partition) meetDuplicateLocked(ctx context.Context, e queue.Entry) bool {
	likeness := p.bucket.Duplicate(e)
	switch likeness {
	case queue.Same:
		p.logDuplicate(e)
		p.w.metrics.finished.count(Duplicate)
		p.bucket.Finish(e.Key, e.Seq)
		return true
	case queue.Another:
		return false
	}
	q := p.pushLocked(e)
	p.parkDuplicateLocked(ctx, q, e.Seq)
	return true
}

// resumeDuplicateLocked does the same with a job that was found when a partition was taken over, and was never called.
func (p *partition) resumeDuplicateLocked(ctx context.Context, q *schedule.KeyQueue, e queue.Entry) {
	switch p.bucket.Duplicate(e) {
	case queue.Same:
		j := jobLocked(p.w.s.Extract(q, e.Seq))
		j.bind(p.w.terms)
		j.Settle()
		p.logDuplicate(e)
		p.w.running.Go(func() { p.w.finish(j, Duplicate) })
	case queue.InDoubt: // its idempotency key is of no use: the one that has ended may have had another
		p.parkDuplicateLocked(ctx, q, e.Seq)
	}
}

// parkDuplicateLocked makes a letter of a job of which nobody can say whether it is one that has ended.
func (p *partition) parkDuplicateLocked(ctx context.Context, q *schedule.KeyQueue, seq uint64) {
	j := jobLocked(p.w.s.Extract(q, seq))
	j.bind(p.w.terms)
	j.Settle()
	p.w.running.Go(func() {
		if p.w.reload(ctx, j) {
			j.doubt.billed = j.doubt.billed.Worst(deadletter.BilledUnknown)
			p.w.bury(ctx, j, deadletter.Unknown, duplicateDetail, nil)
		}
	})
}

const duplicateDetail = "a job with this id has ended, and dedupe was changed about the time this one came: whether it is the same job cannot be told, and it was not called"

func (p *partition) logDuplicate(e queue.Entry) {
	ingest.TraceOf(e.Header).Log(p.w.log).Warn("a job that has ended is in its queue again, by a stream that had forgotten its id or its deletion; it is not called again",
		"key", e.Key, "job_id", e.Header.Get(ingest.HeaderJobID), "seq", e.Seq)
}

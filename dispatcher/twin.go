package dispatcher

import (
	"context"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// Twin is the outcome of a job that stood in its queue a second time and was not called again.
const Twin = "duplicate"

// Deleted is the outcome of a job whose message somebody has deleted.
const Deleted = "deleted"

// A server that restarts forgets the ids of deleted messages: a job that has ended and is sent again is a new one to its
// stream, whichever replica takes it. The partition's owner knows better. It has ended the job itself, or has read in the
// ledger what the owners before had ended; a record stands there before its message is deleted, and the owner knows of it
// before that. So no copy that the stream took can be read before its first is known.

// What it was to JetStream when it came is what counts: the configuration may have changed since for how long ids are known
// (queue.Dedupe). Where that cannot be told the job is neither dropped nor called, but becomes a letter.

// rememberEnd notes that a job has ended, for as long as its id may be known.
func (l *lane) rememberEnd(j *job) {
	if j.message == nil || j.message.DedupeID == "" || j.accepted == 0 {
		return // its record is what it was ended by, and was read with the ledger
	}
	l.queue.Ended(queue.Finished{Key: j.Queue.Key, DedupeID: j.message.DedupeID, Seq: j.Seq, Accepted: j.accepted.Time()})
}

// meetTwinLocked deals with a job that was just read if it is one that has ended, or may be, and reports whether it did.
func (l *lane) meetTwinLocked(ctx context.Context, p *part, e queue.Entry) bool {
	likeness := p.bucket.Twin(e)
	id := e.Header.Get(ingest.HeaderJobID)
	switch likeness {
	case queue.Same:
		l.tellTwin(e.Key, id, e.Seq)
		l.d.metrics.finished.WithLabelValues(l.name, Twin).Inc()
		p.bucket.Finish(e.Key, e.Seq)
		return true
	case queue.Another:
		return false
	}
	q := l.s.Push(e.Key, e.Seq, &p.Partition)
	p.keepLocked(e)
	l.parkTwinLocked(ctx, q, e.Seq)
	return true
}

// resumeTwinLocked does the same with a job that was found when a partition was taken over, and was never called.
func (l *lane) resumeTwinLocked(ctx context.Context, p *part, q *schedule.KeyQueue, e queue.Entry) {
	switch p.bucket.Twin(e) {
	case queue.Same:
		j := jobLocked(q.Extract(e.Seq))
		j.bind(l.terms)
		j.Settle()
		l.tellTwin(q.Key, e.Header.Get(ingest.HeaderJobID), e.Seq)
		l.running.Go(func() { l.finish(j, Twin) })
	case queue.InDoubt: // its idempotency key is of no use: the one that has ended may have had another
		l.parkTwinLocked(ctx, q, e.Seq)
	}
}

// parkTwinLocked makes a letter of a job of which nobody can say whether it is one that has ended.
func (l *lane) parkTwinLocked(ctx context.Context, q *schedule.KeyQueue, seq uint64) {
	j := jobLocked(q.Extract(seq))
	j.bind(l.terms)
	j.Settle()
	l.running.Go(func() { l.buryTwin(ctx, j) })
}

const twinDetail = "a job with this id has ended, and dedupe was changed about the time this one came: whether it is the same job cannot be told, and it was not called"

func (l *lane) buryTwin(ctx context.Context, j *job) {
	if !l.reload(ctx, j) {
		return
	}
	j.doubt.billed = j.doubt.billed.Worst(deadletter.BilledUnknown)
	l.bury(ctx, j, deadletter.Unknown, twinDetail, nil)
}

func (l *lane) tellTwin(key, id string, seq uint64) {
	l.log.Warn("a job that has ended is in its queue again, by a stream that had forgotten its id or its deletion; it is not called again",
		"key", key, "job_id", id, "seq", seq)
}

package dispatcher

import (
	"weir/bucket"
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

// rememberEnd notes that a job has ended, for as long as a stream would know its id.
func (l *lane) rememberEnd(t *task) {
	if t.job == nil || t.job.DedupeID == "" || t.accepted == 0 {
		return // its record is what it was ended by, and was read with the ledger
	}
	l.queue.Ended(bucket.Finished{
		Key: t.line.key, DedupeID: t.job.DedupeID, Seq: t.seq, Until: t.accepted.Time().Add(l.d.opts.Dedupe),
	})
}

// dropTwin lets a job go that was read and has ended already. Called with the lock held.
func (l *lane) dropTwin(p *part, e bucket.Entry) {
	l.tellTwin(e.Key, e.Header.Get(ingest.HeaderJobID), e.Seq)
	l.d.metrics.finished.WithLabelValues(l.name, Twin).Inc()
	p.bucket.Finish(e.Key, e.Seq)
}

// resumeTwin lets a job go that was found when a partition was taken over, never called, and has ended already. Called with
// the lock held.
func (l *lane) resumeTwin(p *part, line *line, seq uint64) {
	id, twin := p.replay.twins[seq]
	if !twin {
		return
	}
	t := line.extract(seq)
	t.terms, t.phase = l.s.terms, settling
	l.tellTwin(line.key, id, seq)
	l.running.Go(func() { l.finish(t, Twin) })
}

func (l *lane) tellTwin(key, id string, seq uint64) {
	l.log.Warn("a job that has ended is in its queue again, by a stream that had forgotten its id or its deletion; it is not called again",
		"key", key, "job_id", id, "seq", seq)
}

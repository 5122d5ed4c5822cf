package settle

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// If weir finds while it runs that a job's message is missing, the job ends as a letter with everything known about it.
// This is so whatever the cause, because the job was accepted. The stream's leader knows which messages were deleted
// (queue.Absence). So weir can tell a message that was deleted by hand from one that the store lost.

// missingDetail returns what a letter says about the job's missing message.
func missingDetail(j *lane.Job, a queue.Absence) string {
	which := fmt.Sprintf("message %d of %s", j.Seq, j.Part.Bucket.Name())
	switch a {
	case queue.DeletedByOthers:
		return DeletedDetail(j.Part.Bucket.Name(), j.Seq)
	case queue.Unexplained:
		return fmt.Sprintf("lost: %s cannot be read any more: the store of its queue is damaged, or the message was deleted; its producer must submit the job again", which)
	case queue.LostByStore, queue.Present:
	}
	return fmt.Sprintf("lost: the store of its queue is damaged: %s cannot be read any more; its producer has to hand the job in again", which)
}

// BuryMissing stores the letter of a job whose message is gone, and ends the job. It blocks until the letter is stored
// or persist gives the job up.
func (w *Settler) BuryMissing(ctx context.Context, j *lane.Job, a queue.Absence) {
	outcome := lane.Lost
	if a == queue.DeletedByOthers {
		outcome = lane.Deleted
	}
	l := &deadletter.Letter{
		API: w.Name, Key: j.Queue.Key, Reason: deadletter.Unknown, BodyLeftOut: true, At: time.Now(), Detail: missingDetail(j, a),
		Origin: ledger.OriginOf(j.Part.Bucket.Name(), j.Seq, 0), Attempts: j.Attempts, Status: j.Status, Billed: j.Doubt.Charged(), Keyed: j.Doubt.Keyed(),
	}
	if len(j.Announced.Marks) > 0 || j.Lost != nil || j.Part.IsRestored(j.Seq) {
		l.Billed = deadletter.BilledUnknown
	}
	if j.Operation != nil {
		l.Operation = j.Operation.Address
	}
	if m := j.Message; m != nil {
		l.Body, l.BodyLeftOut = m.Body, false
		l.JobID, l.Header, l.Redrives, l.ReplyTo, l.Accepted = m.ID, m.Header, m.Redrives, m.ReplyTo, j.Accepted.Time()
	} else if c, err := ledger.At(ctx, w.Env.JS, j.AnsweredAt); err == nil && c != nil && c.Stream == j.Part.Bucket.Name() && c.Seq == j.Seq {
		l.JobID, l.Redrives, l.Accepted = c.Job, c.Redrives, c.Accepted
	} else if j.ID != "" {
		l.JobID, l.Accepted = j.ID, j.Accepted.Time()
	}
	w.Mu.Lock()
	level := slog.LevelError
	if j.Part.IsRemovedLocked(j.Seq) { // tellRemoved has reported it with the other removed jobs
		level = slog.LevelInfo
	}
	w.Mu.Unlock()
	ingest.TraceOf(l.Header).Log(w.Log).Log(ctx, level, "an accepted job's message is gone from its queue; it becomes a letter", "outcome", outcome, "key", l.Key, "seq", j.Seq,
		"job_id", l.JobID, "billed", l.Billed)
	if !w.persist(ctx, "dead letter", j, func() error { return w.Env.Letters.Bury(l) }) {
		return
	}
	if a == queue.LostByStore && !w.noteLost(ctx, j) {
		return
	}
	w.Unrecorded.Never(j)
	w.Finish(j, outcome)
}

// noteLost stores that a job's loss was reported. Its stream still counts the message, so a later owner would otherwise
// report the loss again. noteLost returns false if persist gave the job up.
func (w *Settler) noteLost(ctx context.Context, j *lane.Job) bool {
	return w.persist(ctx, "note of a lost job", j, func() error {
		return j.Part.Told.NoteTold(ctx, j.Queue.Key, func(n int) int { return n + 1 })
	})
}

// DeletedDetail returns what a letter says about a job whose message was deleted by hand.
func DeletedDetail(stream string, seq uint64) string {
	return fmt.Sprintf("deleted: message %d of %s was deleted from the queue before its job had ended", seq, stream)
}

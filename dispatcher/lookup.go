package dispatcher

import (
	"cmp"
	"context"
	"errors"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"

	"weir/bucket"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"

	"github.com/nats-io/nats.go/jetstream"
)

// A partition may have been out of service for longer than the ledger's end reaches back: its stream had no leader, or no replica
// had its api, while others were called. What came of its last calls is then looked up by their keys.

// lookUp looks for a result and a record of a job that has an intent, where that is older than what has been read. It reports
// whether there is none: otherwise the job is brought to the end it had, or the worker stops. It blocks until the ledger has
// answered.
func (w *apiWorker) lookUp(ctx context.Context, j *job) (none bool) {
	since := j.intendedAt.Add(-w.d.opts.Tail.OrDefault().Leeway)
	if j.intendedAt.IsZero() || w.d.tail.Knows(w.name, since) {
		return true
	}
	of := ledger.Job{API: w.name, Key: j.Queue.Key, ID: j.message.ID, Stream: j.part.bucket.Name(), Seq: j.Seq, Accepted: j.accepted}
	found, err := ledger.LookUp(ctx, w.d.opts.JetStream, of, since)
	for err != nil {
		w.log.Error("what came of a call could not be looked up; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !stream.Sleep(ctx, loadRetry) {
			return false // the next start finds the job again
		}
		found, err = ledger.LookUp(ctx, w.d.opts.JetStream, of, since)
	}
	j.intendedAt = time.Time{}
	c := found.Record
	switch {
	case found.Inquiries > 0:
		w.endAgain(ctx, j, ledger.LastCall{Outcome: ledger.Asked})
	case c != nil && c.Final && c.Beside && found.Result == 0:
		j.attempts = c.Attempt
		w.endUnkept(ctx, j, c)
	case c != nil && c.Final:
		w.mu.Lock()
		j.doubt.recall(c.Billed, c.Idempotency)
		w.mu.Unlock()
		w.endAgain(ctx, j, c.Last())
	case found.Result != 0:
		w.endWithResult(ctx, j, found.Result)
	case c != nil && c.Call >= j.Calls: // it was to be called again
		w.unrecorded.accountedFor(j)
		w.update(func(s *schedule.Schedule) {
			j.lost, j.flown, j.Unseen, j.Calls, j.attempts, j.Deaths, j.Failed = nil, nil, false, c.Call, c.Attempt, 0, c.Detail
			j.doubt.recall(c.Billed, c.Idempotency)
			j.answeredAt = cmp.Or(c.Last().At, j.answeredAt)
			w.dropIntentsLocked(j)
			w.restLocked(j, max(w.heldAtMostLocked(c.NotBefore), 1))
		})
	default:
		return true
	}
	return false
}

// notRecorded is the earliest theoretical arrival time of a key of which the ledger holds no record: 0 where it never was
// called, and otherwise what a call just before the ledger's beginning would have come to.
func (w *apiWorker) notRecorded(ctx context.Context, drain time.Duration) (bucket.Micros, error) {
	reached, err := ledger.ExtentOf(ctx, w.d.opts.JetStream)
	if err != nil || reached.Begins.IsZero() {
		return 0, err
	}
	begun := w.now().Add(ledger.ServerSkew - reached.Asked.Sub(reached.Begins))
	if free := begun.Add(drain); free > w.now() {
		w.mu.Lock()
		told := w.shortTold
		w.shortTold = true
		w.mu.Unlock()
		if !told {
			w.log.Warn("the ledger begins so late that slow keys which it does not know may have been called before: they wait as if they had; "+
				"a larger store keeps more of it", "begins", reached.Begins, "until", free.Time())
		}
		return free, nil
	}
	return 0, nil
}

// lastTAT is the theoretical arrival time in the newest record of a key, however old; 0 when it was never called. Where the
// record is this replica's own, and known is what it knows itself, that stands: exact, and not later each time it is asked.
// drain is how long its bucket takes to empty.
func (w *apiWorker) lastTAT(ctx context.Context, key string, known bucket.Micros, drain time.Duration) (bucket.Micros, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	c, err := ledger.Newest(ctx, w.d.opts.JetStream, w.name, key)
	if err != nil {
		return 0, err
	}
	if c == nil {
		return w.notRecorded(ctx, drain)
	}
	switch {
	case w.d.owner == nil:
		return c.TAT, nil
	case known != 0 && c.Instance == w.d.opts.Instance:
		return known, nil
	}
	reached, err := ledger.ExtentOf(ctx, w.d.opts.JetStream)
	if err != nil {
		return 0, err
	}
	return w.inherit(c, c.Stored, reached.Asked), nil
}

func isNotFound(err error) bool { return errors.Is(err, jetstream.ErrMsgNotFound) }

// recallAnswer gives a letter the last answer that the api gave to its job, as the ledger has it, if its call brought none. It blocks
// until the ledger has answered, and reports false where the worker stops before.
func (w *apiWorker) recallAnswer(ctx context.Context, j *job, letter *deadletter.Letter) bool {
	c, err := ledger.At(ctx, w.d.opts.JetStream, j.answeredAt)
	for err != nil && !errors.Is(err, ledger.ErrUnreadable) {
		w.log.Error("the api's last answer could not be read in the ledger; trying again", "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !stream.Sleep(ctx, loadRetry) {
			return false
		}
		c, err = ledger.At(ctx, w.d.opts.JetStream, j.answeredAt)
	}
	j.answeredAt = 0
	if c == nil || c.Stream != j.part.bucket.Name() || c.Seq != j.Seq || c.Status == 0 {
		return true // the ledger has let go of it
	}
	if letter.Answer = c.Answer; letter.Answer == nil {
		letter.Answer = &deadletter.Answer{Status: c.Status, Cut: true} // a pushback's, of which the body is not kept
	}
	return true
}

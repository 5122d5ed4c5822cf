package dispatcher

import (
	"context"
	"errors"

	"weir/bucket/stream"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

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

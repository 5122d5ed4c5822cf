package dispatcher

import (
	"context"
	"errors"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// recallAnswer gives a letter the last answer that the api gave to its job, as the ledger has it, if its call brought none. It reports
// false when the ledger did not answer: then again is called later, or never when the lane stops.
func (l *lane) recallAnswer(ctx context.Context, t *task, letter *deadletter.Letter, again func()) bool {
	c, err := ledger.At(ctx, l.d.opts.JetStream, t.answeredAt)
	if err != nil && !errors.Is(err, ledger.ErrUnreadable) {
		l.log.Error("the api's last answer could not be read in the ledger; trying again", "key", t.line.key, "seq", t.seq, "err", err)
		l.later(ctx, again)
		return false
	}
	t.answeredAt = 0
	if c == nil || c.Stream != t.line.part.bucket.Name() || c.Seq != t.seq || c.Status == 0 {
		return true // the ledger has let go of it
	}
	if letter.Answer = c.Answer; letter.Answer == nil {
		letter.Answer = &deadletter.Answer{Status: c.Status, Cut: true} // a pushback's, of which the body is not kept
	}
	return true
}

package dispatcher

import (
	"context"
	"encoding/json"
	"fmt"

	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// recallAnswer gives a letter the last answer that the api gave to its job, as the ledger has it, if its call brought none. It reports
// false when the ledger did not answer: then again is called later, or never when the lane stops.
func (l *lane) recallAnswer(ctx context.Context, t *task, letter *deadletter.Letter, again func()) bool {
	msg, err := stream.AskLeader(ctx, l.d.opts.Conn, ledger.CallsStream, fmt.Sprintf(`{"seq":%d}`, t.answeredAt))
	if err != nil {
		l.log.Error("the api's last answer could not be read in the ledger; trying again", "key", t.line.key, "seq", t.seq, "err", err)
		l.later(ctx, again)
		return false
	}
	t.answeredAt = 0
	var c ledger.Record
	if msg == nil || json.Unmarshal(msg.Data, &c) != nil || c.Stream != t.line.part.bucket.Name() || c.Seq != t.seq || c.Status == 0 {
		return true // the ledger has let go of it
	}
	if letter.Answer = c.Answer; letter.Answer == nil {
		letter.Answer = &deadletter.Answer{Status: c.Status, Cut: true} // a pushback's, of which the body is not kept
	}
	return true
}

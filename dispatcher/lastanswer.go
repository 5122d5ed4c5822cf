package dispatcher

import (
	"context"
	"encoding/json"

	"weir/deadletter"
	"weir/dispatcher/ledger"
)

// recallAnswer gives a letter the last answer that the api gave to its job, as the ledger has it, if its call brought none. It
// reports false where the worker stops before the ledger has answered.
func (w *apiWorker) recallAnswer(ctx context.Context, j *job, letter *deadletter.Letter) bool {
	msg, ok := w.ask(ctx, j, ledger.CallsStream, j.answeredAt)
	if !ok {
		return false
	}
	j.answeredAt = 0
	var c ledger.Record
	if msg == nil || json.Unmarshal(msg.Data, &c) != nil || c.Stream != j.part.bucket.Name() || c.Seq != j.Seq || c.Status == 0 {
		return true // the ledger has let go of it
	}
	if letter.Answer = c.Answer; letter.Answer == nil {
		letter.Answer = &deadletter.Answer{Status: c.Status, Cut: true} // a pushback's, of which the body is not kept
	}
	return true
}

package dispatcher

import (
	"context"
	"fmt"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// resultBar keeps a result of a job from being stored any more: a letter is to say that nobody knows it. One may be on its way still, sent by
// a replica that had the right to and lost it while its connection stalled. What bars it carries the result's id, which the stream takes
// once: for two minutes.
type resultBar struct {
	w *apiWorker
	j *job
}

// fenceSubject is where the stream of results takes what keeps a result out. It is no result's, so that nobody who reads
// results takes it for one.
const fenceSubject = "weir.o.results"

// set bars the result, and then tells where one stands that was stored before, 0 for none. ok is false where the job is let go of
// meanwhile. A partition that nobody else can own needs no bar.
func (b resultBar) set(ctx context.Context) (at uint64, ok bool) {
	if b.j.part.Lease == nil {
		return 0, true
	}
	msg := &nats.Msg{Subject: fenceSubject, Header: nats.Header{ingest.HeaderMsgID: {resultMsgID(b.j)}}}
	if !b.w.persist(ctx, "bar against a late result", b.j, func() (err error) {
		at, err = b.w.d.results.WriteWhile(b.j.part.mayCall, msg)
		return err
	}) {
		return 0, false
	}
	return b.holder(ctx, at)
}

// holder looks what has the id of a job's result, and tells where that stands if it is the result, 0 if it is not.
func (b resultBar) holder(ctx context.Context, at uint64) (result uint64, ok bool) {
	e := &b.w.evidence
	msg, ok := e.result(ctx, e.of(b.j), at)
	switch {
	case !ok:
		return 0, false
	case msg == nil: // what fenced it before has been deleted, or another job's stands there
		return 0, true
	case msg.Subject == fenceSubject:
		// The stream knows the id all the same. Where it is not deleted it says nothing, and goes with the results' age.
		if err := e.js.Conn().Publish("$JS.API.STREAM.MSG.DELETE."+ledger.ResultsStream, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, at)); err != nil {
			b.w.log.Warn("what bars a late result stays among the results", "seq", at, "err", err)
		}
		return 0, true
	}
	return at, true
}

// isOpen reports whether a result stands where it was stored that an ended process had noted. An owner in between may have barred it, and have
// ended before it wrote down that the job is unknown.
func (b resultBar) isOpen(ctx context.Context, at uint64) (open, ok bool) {
	if b.j.part.Lease == nil {
		return true, true
	}
	stands, ok := b.holder(ctx, at)
	return stands != 0, ok
}

// barred is what a call came to whose result was barred.
func barred(status int) httpcall.Outcome {
	return httpcall.Unknown(deadletter.BilledYes, "the api answered %d, and another replica had barred the result before it ended", status)
}

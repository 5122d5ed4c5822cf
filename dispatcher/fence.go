package dispatcher

import (
	"context"
	"fmt"

	"weir/bucket/stream"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// fenceSubject is where the stream of results takes what keeps a result out. It is no result's, so that nobody who reads
// results takes it for one.
const fenceSubject = "weir.o.results"

// fenceResult keeps a result of the job from being stored any more, and then tells where one stands that was stored before, 0 for
// none. One may be on its way still, sent by a replica that had the right to and lost it while its connection stalled. What
// bars it carries the result's id, which the stream takes once: for two minutes. ok is false where the job is let go of
// meanwhile.
func (w *apiWorker) fenceResult(ctx context.Context, j *job) (at uint64, ok bool) {
	msg := &nats.Msg{Subject: fenceSubject, Header: nats.Header{ingest.HeaderMsgID: {resultMsgID(j)}}}
	if !w.persist(ctx, "bar against a late result", j, func() (err error) {
		at, err = awaitWrite(func(done func(uint64, error)) { w.d.results.WriteWhile(j.part.mayCall, msg, done) })
		return err
	}) {
		return 0, false
	}
	return w.fenced(ctx, j, at)
}

// fenced looks what has the id of a job's result, and tells where that stands if it is the result.
func (w *apiWorker) fenced(ctx context.Context, j *job, at uint64) (result uint64, ok bool) {
	msg, ok := w.ask(ctx, j, ledger.ResultsStream, at)
	switch {
	case !ok:
		return 0, false
	case msg == nil: // what fenced it before has been deleted
		return 0, true
	case msg.Subject == fenceSubject:
		// The stream knows the id all the same. Where it is not deleted it says nothing, and goes with the results' age.
		if err := w.d.opts.Conn.Publish("$JS.API.STREAM.MSG.DELETE."+ledger.ResultsStream, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, at)); err != nil {
			w.log.Warn("what bars a late result stays among the results", "seq", at, "err", err)
		}
		return 0, true
	}
	if header, err := nats.DecodeHeadersMsg(msg.Headers); err != nil || header.Get(ingest.HeaderJobID) != j.message.ID { // another job's, of a stream that is gone
		return 0, true
	}
	return at, true
}

// ask reads one message of a stream from its leader, nil where there is none. It blocks until the leader has answered; ok is
// false where the worker stops before.
func (w *apiWorker) ask(ctx context.Context, j *job, name string, at uint64) (msg *stream.LeaderMessage, ok bool) {
	for {
		msg, err := stream.AskLeader(ctx, w.d.opts.Conn, name, fmt.Sprintf(`{"seq":%d}`, at))
		if err == nil {
			return msg, true
		}
		w.log.Error("what came of a call could not be read; trying again", "stream", name, "key", j.Queue.Key, "seq", j.Seq, "err", err)
		if !stream.Sleep(ctx, loadRetry) {
			return nil, false // the next start finds the job again
		}
	}
}

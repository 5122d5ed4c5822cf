package dispatcher

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"weir/bucket/stream"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// A result is stored before its call's record, and a worker may die between the two. Its job is in the stream then, and
// must not be called again. Records are stored within seconds of their results, or nothing more is called: so the results
// from shortly before the ledger's newest record on are all that can lack one, where there is no record at all the last
// 500,000.

// endWithResult ends a job that was found with a result and no record of it. Who waits for the result is told, again
// perhaps.
func (w *apiWorker) endWithResult(ctx context.Context, j *job, at uint64) {
	if !w.reload(ctx, j) {
		return
	}
	msg, ok := w.ask(ctx, j, ledger.ResultsStream, at)
	if !ok {
		return
	}
	var header nats.Header
	var err error
	if msg != nil {
		header, err = nats.DecodeHeadersMsg(msg.Headers)
	}
	if msg == nil || err != nil || header.Get(ingest.HeaderJobID) != j.message.ID { // another job's, of a stream that is gone
		if j.lost != nil {
			w.settleLost(ctx, j)
			return
		}
		w.unrecorded.never(j)
		w.update(func(s *schedule.Schedule) { w.restLocked(j, 1) })
		return
	}
	calls, _ := strconv.Atoi(header.Get(ledger.HeaderCalls)) // weir's own headers: always there
	attempts, _ := strconv.Atoi(header.Get(ledger.HeaderAttempts))
	w.mu.Lock()
	j.Calls, j.attempts = max(j.Calls, calls), max(j.attempts, attempts)
	j.doubt.billed = j.doubt.billed.Worst(deadletter.BilledYes)
	w.mu.Unlock()
	if j.message.ReplyTo != "" {
		w.d.reply(j.message.ReplyTo, &nats.Msg{Header: header, Data: msg.Data})
	}
	if w.keepRecord(ctx, j, w.lostRecord(j, header)) {
		w.traceEnd(j, nil)
		w.finish(j, ledger.Done)
	}
}

// lostRecord is the ledger's record of a call of which only the result was stored.
func (w *apiWorker) lostRecord(j *job, result nats.Header) *ledger.Record {
	status, _ := strconv.Atoi(result.Get(ledger.HeaderStatus)) // weir's own headers: always there
	started, _ := time.Parse(time.RFC3339Nano, result.Get(ledger.HeaderCalledAt))
	ended, _ := time.Parse(time.RFC3339Nano, result.Get(ledger.HeaderFinishedAt))
	out := httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes, Detail: "the worker died after its result was stored"}
	c := w.record(j, httpcall.Response{Sent: true, Status: status, Started: started, Ended: ended}, out)
	c.Planned = time.Time{}
	j.asIntended(c)
	return c
}

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

package dispatcher

import (
	"context"
	"strconv"
	"time"

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
		w.neverRecorded(j)
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

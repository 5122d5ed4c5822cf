package settle

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// resultBar keeps a late result of a job out of the results, before a letter says that the job's outcome is unknown. A
// result may still be on its way: its replica had the right to send it, and lost the right while its connection
// stalled. The bar is a message with the result's id. The stream takes an id only once within two minutes, and so
// refuses the result.
type resultBar struct {
	w  *Settler
	j  *lane.Job
	id string // of the result
}

// FenceSubject is the subject of bars in the stream of results. No result has this subject, so readers of results do
// not mistake a bar for a result.
const FenceSubject = "weir.o.results"

// Bar bars a job's result. If a result was stored before, Bar returns its sequence, otherwise 0. ok is false if the job
// was given up.
func (w *Settler) Bar(ctx context.Context, j *lane.Job) (at uint64, ok bool) {
	return resultBar{w, j, resultMsgID(j)}.set(ctx)
}

// EndsLate bars the result of a job whose pack cannot be called again. If a result was stored after the call was taken
// for lost, EndsLate ends the job with it. It returns true if the job has ended or was given up. It returns false if
// the caller must end the job by a letter. The record of this end is of no call, because the lost call has a record of
// its own.
func (w *Settler) EndsLate(ctx context.Context, j *lane.Job) bool {
	at, ok := w.Bar(ctx, j)
	if !ok || at == 0 {
		return !ok
	}
	msg, ok := w.Evidence.Result(ctx, w.Evidence.Of(j), at)
	switch {
	case !ok:
		return true
	case msg == nil:
		return false // the result was deleted just now
	case j.Message.ReplyTo != "":
		w.Env.Reply(j.Message.ReplyTo, &nats.Msg{Header: msg.Header, Data: msg.Data})
	}
	r, out := StoredResponse(msg.Header)
	out.Detail = "its result was stored after its call was taken for lost"
	j.Bill.Usage, j.Bill.Unsettled, j.Holdup = nil, nil, schedule.Holdup{}
	c := Record(j, r, out)
	c.Polled, c.Planned, c.Result = true, r.Ended.UTC(), at
	c.Price, c.Costs, c.Reserved, c.Estimated = ledger.Money(0), make([]int64, len(c.Limits)), nil, nil
	if w.KeepRecord(ctx, j, c) {
		w.Spans.End(j, nil)
		w.Finish(j, ledger.Done)
	}
	return true
}

// StoredResponse returns what the headers of a stored result say of the call's answer, and the outcome of the call.
func StoredResponse(result nats.Header) (httpcall.Response, httpcall.Outcome) {
	status, _ := strconv.Atoi(result.Get(ledger.HeaderStatus)) // weir's own headers: always there
	started, _ := time.Parse(time.RFC3339Nano, result.Get(ledger.HeaderCalledAt))
	ended, _ := time.Parse(time.RFC3339Nano, result.Get(ledger.HeaderFinishedAt))
	return httpcall.Response{Sent: true, Status: status, Started: started, Ended: ended},
		httpcall.Outcome{Verdict: httpcall.Delivered, Billed: deadletter.BilledYes, Detail: "the worker died after its result was stored"}
}

// BarReused is Bar for a result that is the answer of another job.
func (w *Settler) BarReused(ctx context.Context, j *lane.Job) (at uint64, ok bool) {
	return resultBar{w, j, reusedMsgID(j)}.set(ctx)
}

// set bars the result. If a result was stored before, set returns its sequence, otherwise 0. ok is false if persist
// gave the job up. If no other replica can own the partition, no bar is needed.
func (b resultBar) set(ctx context.Context) (at uint64, ok bool) {
	if b.j.Part.Lease == nil {
		return 0, true
	}
	msg := &nats.Msg{Subject: FenceSubject, Header: nats.Header{ingest.HeaderMsgID: {b.id}}}
	if !b.w.persist(ctx, "bar against a late result", b.j, func() error {
		a := b.w.Env.Results.WriteWhile(b.j.Part.MayCall, msg)
		at = a.Seq
		return a.Err
	}) {
		return 0, false
	}
	return b.holder(ctx, at)
}

// holder looks up the message that was stored under the id of the job's result; at is its sequence. If the message is
// the result, holder returns at. If it is a bar, holder deletes it and returns 0. If it is gone, holder returns 0, too.
func (b resultBar) holder(ctx context.Context, at uint64) (result uint64, ok bool) {
	e := &b.w.Evidence
	msg, ok := e.Result(ctx, e.Of(b.j), at)
	switch {
	case !ok:
		return 0, false
	case msg == nil: // an earlier bar was deleted, or a message of another job has its sequence
		return 0, true
	case msg.Subject == FenceSubject:
		// The stream remembers the id of a deleted bar. A bar that is not deleted does no harm: it is dropped when it
		// is as old as results may get.
		if err := e.js.Conn().Publish("$JS.API.STREAM.MSG.DELETE."+ledger.ResultsStream, fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, at)); err != nil {
			b.w.Log.Warn("could not delete a bar against a late result", "seq", at, "err", err)
		}
		return 0, true
	}
	return at, true
}

// isOpen reports whether the message at a sequence is the job's result, and not a bar. It is called if the stream knew
// the result's id already. Another owner in between may have barred the result, and died or lost the partition before
// it stored the job's unknown outcome. If the job's intent was gone by then, the job was called again.
func (b resultBar) isOpen(ctx context.Context, at uint64) (open, ok bool) {
	if b.j.Part.Lease == nil {
		return true, true
	}
	stands, ok := b.holder(ctx, at)
	return stands != 0, ok
}

// barred returns the outcome of a call whose result was barred.
func barred(status int) httpcall.Outcome {
	return httpcall.Unknown(deadletter.BilledYes, "the api answered %d, and another replica had barred the result before it ended", status)
}

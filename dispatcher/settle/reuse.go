package settle

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"weir/bucket/fault"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/reuse"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// A job may end with the answer of an equal job (dispatcher/comparison.go). It then gets a mark of its end, a result of
// its own, a reply and a record. After a crash the mark says that the result may be stored, or may still arrive.
// Recovery ends the job with the result. If there is none, it bars the result and lets the job wait
// (dispatcher/takeover/loneresult.go).

// Answer reads the result to which a refers. It returns nil if that result is gone, or if another message has its
// sequence because the stream was created again. It blocks until the stream's leader answers, at most for
// lane.LoadTimeout.
func (w *Settler) Answer(ctx context.Context, j *lane.Job, a reuse.Answer) (*ledger.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, lane.LoadTimeout)
	defer cancel()
	r, err := ledger.ResultAt(ctx, w.Env.JS, a.Seq)
	if err != nil || r == nil {
		return nil, err
	}
	h := r.Header
	if r.API != w.Name || h.Get(ledger.HeaderRequest) != a.Sum.String() || h.Get(ledger.HeaderReused) != "" || h.Get(ledger.HeaderBody) != "" ||
		h.Get(ledger.HeaderFoundBy) != "" || int64(len(r.Body)) > j.Terms.API.MaxResult {
		return nil, nil //nolint:nilnil // it is another one
	}
	return r, nil
}

// EndReused ends a job with the answer of another job. It blocks until the end is stored or persist gives the job up.
func (w *Settler) EndReused(ctx context.Context, j *lane.Job, of *ledger.Result) {
	seq, ok := w.keepMark(ctx, "end", j, queue.RetryMark{
		Seq: j.Seq, Ends: queue.EndsReused, Reason: reusedDetail(of.Job), Accepted: j.Accepted, KeySum: queue.KeySum(j.Queue.Key),
	})
	if !ok {
		return
	}
	w.Mu.Lock()
	j.Marks.Ends = append(j.Marks.Ends, seq)
	w.Mu.Unlock()
	msg := reusedResult(j, of, time.Now())
	stored, ok := w.storeResult(ctx, j, msg)
	if !ok {
		return
	}
	if stored.Duplicate {
		switch open, ok := (resultBar{w, j, reusedMsgID(j)}).isOpen(ctx, stored.Seq); {
		case !ok:
			return
		case !open: // this or another owner has barred it, because it found an earlier mark
			w.Update(func(*schedule.Schedule) {
				j.MustCall = true
				w.RestLocked(j, 1)
			})
			return
		}
	}
	fault.Pass(fault.ResultStored)
	if j.Message.ReplyTo != "" {
		w.Env.Reply(j.Message.ReplyTo, msg)
	}
	c := ReusedRecord(j, msg.Header)
	c.Result = stored.Seq
	if w.KeepRecord(ctx, j, c) {
		w.Spans.End(j, nil)
		w.Finish(j, ledger.Reused)
	}
}

// reusedResult builds the result of a job that ends with the answer of another job.
func reusedResult(j *lane.Job, of *ledger.Result, at time.Time) *nats.Msg {
	called, _ := time.Parse(time.RFC3339Nano, of.Header.Get(ledger.HeaderCalledAt)) // weir's own header: always there
	msg := resultOf(j, httpcall.Response{Status: of.Status, Header: http.Header(of.Header), Body: of.Body, Started: called, Ended: at})
	h := msg.Header
	h[ingest.HeaderMsgID], h[ledger.HeaderPrice], h[ledger.HeaderReused] = []string{reusedMsgID(j)}, []string{ledger.Money(0)}, []string{of.Job}
	return msg
}

func reusedDetail(job string) string { return "the answer of job " + job }

// ReusedRecord builds the ledger's record of a job that ended with another job's answer. It builds it from the job's
// result. The record takes nothing from any limit. But it has the key's pace, because it may be the key's newest
// record.
func ReusedRecord(j *lane.Job, result nats.Header) *ledger.Record {
	status, _ := strconv.Atoi(result.Get(ledger.HeaderStatus)) // weir's own headers: always there
	at, _ := time.Parse(time.RFC3339Nano, result.Get(ledger.HeaderFinishedAt))
	from := result.Get(ledger.HeaderReused)
	c := Record(j, httpcall.Response{Status: status, Started: at, Ended: at}, httpcall.Outcome{
		Verdict: httpcall.Delivered, Billed: deadletter.NotBilled, Detail: reusedDetail(from),
	})
	c.Outcome, c.ReusedFrom, c.Call, c.Attempt, c.Planned = ledger.Reused, from, 0, 0, time.Time{}
	c.Price, c.Idempotency, c.Usage, c.Unsettled = ledger.Money(0), "", nil, nil
	c.Limits, c.Costs, c.Reserved, c.Estimated = nil, nil, nil, nil
	c.HeldFor, c.HeldLimit, c.HeldMS = "", "", 0
	if !j.Terms.API.PriceTerms().Settles() {
		var t lane.Toll
		var err error
		if crash := lane.Contained(func() { t, err = j.Terms.Toll(j.Message) }); crash == nil && err == nil {
			c.Saved = ledger.Money(t.Price)
		}
	}
	return c
}

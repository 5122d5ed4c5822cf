package dispatcher

import (
	"context"
	"strconv"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// This file builds the messages that are stored at a job's end: its result, the ledger's record of its call, its
// letter. Add a new header for these here.

func resultMsgID(j *job) string { return "result." + j.origin() }

// result builds the message of a successful job's result.
func (w *settler) result(j *job, r httpcall.Response) *nats.Msg {
	m := j.message
	fields := [...]struct{ name, value string }{
		{ingest.HeaderMsgID, resultMsgID(j)},
		{ingest.HeaderJobID, m.ID},
		{ingest.HeaderAPI, m.API},
		{ingest.HeaderKey, ingest.HeaderText(m.Key)},
		{ledger.HeaderOutcome, ledger.Done},
		{ledger.HeaderStatus, strconv.Itoa(r.Status)},
		{ledger.HeaderAttempts, strconv.Itoa(j.attempts)},
		{ledger.HeaderCalls, strconv.Itoa(j.Calls)},
		{ledger.HeaderPrice, ledger.Money(j.price())},
		{ledger.HeaderAcceptedAt, ledger.Stamp(j.accepted.Time())},
		{ledger.HeaderCalledAt, ledger.Stamp(r.Started)},
		{ledger.HeaderFinishedAt, ledger.Stamp(r.Ended)},
	}
	values := make([]string, len(fields)) // one array for all of them, since each call makes a result
	h := make(nats.Header, len(fields)+3)
	for i, f := range fields {
		values[i] = f.value
		h[f.name] = values[i : i+1 : i+1]
	}
	m.Trace.AddTo(h)
	if v := ledger.Clip(r.Header.Get("Content-Type"), ledger.MaxContentType); v != "" {
		h["Content-Type"] = []string{v}
	}
	msg := &nats.Msg{Subject: ledger.ResultSubject(m.API, m.Key), Header: h, Data: r.Body}
	if most := max(0, min(int(w.env.conn.MaxPayload())-ledger.HeaderRoom, int(j.terms.api.MaxResult))); r.More || len(msg.Data) > most {
		msg.Data = msg.Data[:min(len(msg.Data), most)]
		h[ledger.HeaderBody] = []string{ledger.BodyCut}
	}
	return msg
}

// record builds the ledger's record of a job's last call.
func (w *settler) record(j *job, r httpcall.Response, out httpcall.Outcome) *ledger.Record {
	w.mu.Lock()
	// Calls of a key end in any order; its newest record must cover all of them.
	tat := max(j.Grant.TAT, w.s.Floor(j.Queue))
	w.mu.Unlock()
	ahead := w.env.ahead() // records are in calendar time, by which a later process starts
	if tat != 0 {
		tat += ahead
	}
	c := &ledger.Record{
		API: j.message.API, Key: j.message.Key, Job: j.message.ID, Dedupe: j.message.DedupeID, Stream: j.part.bucket.Name(), Seq: j.Seq,
		Call: j.Calls, Attempt: j.attempts, Redrives: j.message.Redrives, Trace: j.message.Trace.Parent,
		Accepted: j.accepted.Time().UTC(), Planned: (j.At + ahead).Time(), Started: r.Started.UTC(), Ended: r.Ended.UTC(), Sent: r.Sent, Status: r.Status,
		Outcome: out.Name(), Final: out.Verdict == httpcall.Delivered || out.Verdict == httpcall.Dead, Detail: ledger.Clip(out.Detail, ledger.MaxDetail),
		Price: ledger.Money(j.terms.api.Price), Billed: out.Billed, Idempotency: j.terms.api.KeyIdentity(), TAT: tat,
		Limits: j.terms.api.Rules.Names(), Costs: j.charged(), Unsettled: j.unsettled, Instance: w.env.instance,
	}
	if out.Verdict != httpcall.Delivered && out.Verdict != httpcall.Pushback {
		c.Answer = httpcall.AnswerOf(j.terms.api, r)
	}
	if j.flown != nil {
		j.asFlown(c)
	} else if j.holdup.For != "" {
		c.HeldFor, c.HeldLimit, c.HeldMS = string(j.holdup.For), j.holdup.Limit, j.holdup.Took.Milliseconds()
	}
	return c
}

// letter builds a job's letter.
func (w *settler) letter(j *job, reason deadletter.Reason, detail string, status int, billed deadletter.Billed) *deadletter.Letter {
	m := j.message
	var accepted time.Time
	if j.accepted != 0 {
		accepted = j.accepted.Time()
	}
	return &deadletter.Letter{
		API: w.name, Key: j.Queue.Key, JobID: m.ID, Origin: j.origin(), Reason: reason, Detail: detail,
		Header: m.Header, Body: m.Body, At: time.Now(), Attempts: j.attempts, Status: status, Billed: billed, Keyed: j.doubt.keyed(),
		Redrives: m.Redrives, ReplyTo: m.ReplyTo, Accepted: accepted, Call: j.lastCall,
	}
}

const lateDetail = "the deadline passed before its call"

// expire ends a job whose deadline has passed. It loads the job's message if it is not in memory.
func (w *settler) expire(ctx context.Context, j *job) {
	if !w.reload(ctx, j) {
		return
	}
	if !j.doubt.allows(w.present()) {
		w.bury(ctx, j, deadletter.Unknown, j.inDoubt(), nil)
		return
	}
	// A restored job may come here before its deadline: the api took no keys when the job was read, and takes keys now.
	if j.part.isRestored(j.Seq) && (j.message.Deadline.IsZero() || time.Now().Before(j.message.Deadline)) {
		w.bury(ctx, j, deadletter.Unknown, j.inDoubt(), nil)
		return
	}
	w.bury(ctx, j, deadletter.Expired, lateDetail+w.waited(j), nil)
}

// buryCancelled makes a letter of a cancelled job.
func (w *settler) buryCancelled(ctx context.Context, j *job) {
	w.mu.Lock()
	removed := j.part.isRemovedLocked(j.Seq)
	w.mu.Unlock()
	if removed {
		w.buryMissing(ctx, j, queue.DeletedByOthers)
		return
	}
	if !w.reload(ctx, j) {
		return
	}
	detail := "cancelled by an operator"
	if j.why != "" {
		detail += ": " + j.why
	}
	w.bury(ctx, j, deadletter.Cancelled, detail+w.waited(j), nil)
}

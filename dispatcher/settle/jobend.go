package settle

import (
	"context"
	"strconv"
	"time"

	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// The functions of this file build the messages that are stored at a job's end: its result, the ledger's record of its
// call, and its letter. New headers of these messages are added here.

// resultMsgID returns the message id of a job's result.
func resultMsgID(j *lane.Job) string { return "result." + j.Origin() }

// reusedMsgID returns the message id of a job's result if the job got another job's answer.
func reusedMsgID(j *lane.Job) string { return ledger.ReusedPrefix + j.Origin() }

// resultOf builds the message of a successful job's result.
func resultOf(j *lane.Job, r httpcall.Response) *nats.Msg {
	m, called := j.Message, r.Started
	if j.Operation != nil {
		called = j.Operation.Started
	}
	fields := [...]struct{ name, value string }{
		{ingest.HeaderMsgID, resultMsgID(j)},
		{ingest.HeaderJobID, m.ID},
		{ingest.HeaderAPI, m.API},
		{ingest.HeaderKey, ingest.HeaderText(m.Key)},
		{ledger.HeaderOutcome, ledger.Done},
		{ledger.HeaderStatus, strconv.Itoa(r.Status)},
		{ledger.HeaderAttempts, strconv.Itoa(j.Attempts)},
		{ledger.HeaderCalls, strconv.Itoa(j.Calls)},
		{ledger.HeaderPrice, ledger.Money(j.Price())},
		{ledger.HeaderAcceptedAt, ledger.Stamp(j.Accepted.Time())},
		{ledger.HeaderCalledAt, ledger.Stamp(called)},
		{ledger.HeaderFinishedAt, ledger.Stamp(r.Ended)},
	}
	values := make([]string, len(fields)) // one array for all values, because each call makes a result
	h := make(nats.Header, len(fields)+2) // the usual ones; with room for more the map would be twice as large
	for i, f := range fields {
		values[i] = f.value
		h[f.name] = values[i : i+1 : i+1]
	}
	if m.Redrives > 0 {
		h[ingest.HeaderRedrives] = []string{strconv.Itoa(m.Redrives)}
	}
	if j.In != nil {
		h[ledger.HeaderPack] = []string{j.In.ID}
	}
	m.Trace.AddTo(h)
	if v := ledger.Clip(r.Header.Get("Content-Type"), ledger.MaxContentType); v != "" {
		h["Content-Type"] = []string{v}
	}
	msg := &nats.Msg{Subject: ledger.ResultSubject(m.API, m.Key), Header: h, Data: r.Body}
	payload := int(j.Part.W.Env.Conn.MaxPayload()) - ledger.HeaderRoom
	if most := max(0, min(payload, int(j.Terms.API.MaxResult))); r.More || len(msg.Data) > most {
		msg.Data = msg.Data[:min(len(msg.Data), most)]
		h[ledger.HeaderBody] = []string{ledger.BodyCut}
	}
	return msg
}

// Record builds the ledger's record of a job's last call.
func Record(j *lane.Job, r httpcall.Response, out httpcall.Outcome) *ledger.Record {
	w := j.Part.W
	w.Mu.Lock()
	// Calls of a key end in any order. The TAT in the key's newest record must cover all of them.
	tat := max(j.Grant.TAT, w.Sched.At(w.Now()).Floor(j.Queue))
	w.Mu.Unlock()
	ahead := w.Env.Ahead() // records are in calendar time, because a later process starts from them
	if tat != 0 {
		tat += ahead
	}
	c := &ledger.Record{
		API: j.Message.API, Key: j.Message.Key, Job: j.Message.ID, Dedupe: j.Message.DedupeID, Stream: j.Part.Bucket.Name(), Seq: j.Seq,
		Call: j.Calls, Attempt: j.Attempts, Redrives: j.Message.Redrives,
		From: deadletter.RedrivenFrom(j.Message.Header, j.Message.Redrives), Trace: j.Message.Trace.Parent,
		Accepted: j.Accepted.Time().UTC(), Planned: (j.At + ahead).Time(), Started: r.Started.UTC(), Ended: r.Ended.UTC(), Sent: r.Sent, Status: r.Status,
		Outcome: out.Name(), Final: out.Verdict == httpcall.Delivered || out.Verdict == httpcall.Dead, Detail: ledger.Clip(out.Detail, ledger.MaxDetail),
		Price: ledger.Money(j.Price()), Billed: out.Billed, Idempotency: j.Identity(r.Started), Pack: j.In, TAT: tat,
		Limits: j.Terms.API.Rules.Names(), Costs: j.Bill.Charged(j.Costs), Reserved: j.Bill.Over(j.Costs),
		Usage: j.Bill.Usage, Unsettled: j.Bill.Unsettled,
		Instance: w.Env.Instance,
	}
	// If a call is submitted, unbilled or unsettled, no answer says what it took.
	if out.Verdict != httpcall.Submitted && out.Billed != deadletter.NotBilled && len(j.Bill.Unsettled) == 0 {
		c.Estimated = j.Bill.Low()
	}
	if out.Verdict != httpcall.Delivered && out.Verdict != httpcall.Pushback {
		c.Answer = httpcall.AnswerOf(j.Terms.API, r)
	}
	if j.Flown != nil {
		j.AsFlown(c)
	} else if j.Holdup.For != "" {
		c.HeldFor, c.HeldLimit, c.HeldMS = string(j.Holdup.For), j.Holdup.Limit, j.Holdup.Took.Milliseconds()
	}
	return c
}

// Letter builds a job's letter.
func Letter(
	j *lane.Job, reason deadletter.Reason, detail string, status int, billed deadletter.Billed,
) *deadletter.Letter {
	m := j.Message
	var accepted time.Time
	if j.Accepted != 0 {
		accepted = j.Accepted.Time()
	}
	operation := ""
	if j.Operation != nil {
		operation = j.Operation.Address
	}
	return &deadletter.Letter{
		API: j.Part.W.Name, Key: j.Queue.Key, JobID: m.ID, Origin: j.Origin(), Reason: reason, Detail: detail,
		Header: m.Header, Body: m.Body, At: time.Now(), Attempts: j.Attempts, Status: status, Billed: billed, Keyed: j.Doubt.Keyed(),
		Redrives: m.Redrives, ReplyTo: m.ReplyTo, Accepted: accepted, Call: j.LastCall, Operation: operation,
	}
}

// LateDetail is what a letter says about a job whose deadline has passed.
const LateDetail = "the deadline passed before its call"

// Expire ends a job whose deadline has passed. It loads the job's message if it is not in memory.
func (w *Settler) Expire(ctx context.Context, j *lane.Job) {
	if !w.Reload(ctx, j) {
		return
	}
	if j.Forgotten || !j.Allows(w.Present()) {
		w.Bury(ctx, j, deadletter.Unknown, j.InDoubt(w.Present()), nil)
		return
	}
	// A restored job may expire before its deadline. This happens if the api took no keys when the job was read, but
	// takes keys now.
	if j.Part.IsRestored(j.Seq) && (j.Message.Deadline.IsZero() || time.Now().Before(j.Message.Deadline)) {
		w.Bury(ctx, j, deadletter.Unknown, j.InDoubt(w.Present()), nil)
		return
	}
	w.Bury(ctx, j, deadletter.Expired, LateDetail+w.Waited(j), nil)
}

// BuryCancelled makes a letter of a cancelled job.
func (w *Settler) BuryCancelled(ctx context.Context, j *lane.Job) {
	w.Mu.Lock()
	removed := j.Part.IsRemovedLocked(j.Seq)
	w.Mu.Unlock()
	if removed {
		w.BuryMissing(ctx, j, queue.DeletedByOthers)
		return
	}
	if !w.Reload(ctx, j) {
		return
	}
	detail := "cancelled by an operator"
	if j.Why != "" {
		detail += ": " + j.Why
	}
	w.Bury(ctx, j, deadletter.Cancelled, detail+w.Waited(j), nil)
}

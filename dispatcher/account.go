package dispatcher

import (
	"strconv"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

func (j *job) origin() string { return ledger.OriginOf(j.part.bucket.Name(), j.Seq, j.accepted) }

func resultMsgID(j *job) string { return "result." + j.origin() }

// result renders what a job came to.
func (l *lane) result(t *job, r httpcall.Response) *nats.Msg {
	j := t.message
	h := nats.Header{
		ingest.HeaderMsgID: {resultMsgID(t)},
		ingest.HeaderJobID: {j.ID}, ingest.HeaderAPI: {j.API}, ingest.HeaderKey: {ingest.HeaderText(j.Key)},
		ledger.HeaderOutcome: {ledger.Done}, ledger.HeaderStatus: {strconv.Itoa(r.Status)},
		ledger.HeaderAttempts: {strconv.Itoa(t.attempts)}, ledger.HeaderCalls: {strconv.Itoa(t.Calls)},
		ledger.HeaderPrice:      {ledger.Money(t.terms.api.Price)},
		ledger.HeaderAcceptedAt: {ledger.Stamp(t.accepted.Time())}, ledger.HeaderCalledAt: {ledger.Stamp(r.Started)}, ledger.HeaderFinishedAt: {ledger.Stamp(r.Ended)},
	}
	if v := ledger.Clip(r.Header.Get("Content-Type"), ledger.MaxContentType); v != "" {
		h["Content-Type"] = []string{v}
	}
	m := &nats.Msg{Subject: ledger.ResultSubject(j.API, j.Key), Header: h, Data: r.Body}
	if most := max(0, min(int(l.d.opts.Conn.MaxPayload())-ledger.HeaderRoom, int(t.terms.api.MaxResult))); r.More || len(m.Data) > most {
		m.Data = m.Data[:min(len(m.Data), most)]
		h[ledger.HeaderBody] = []string{ledger.BodyCut}
	}
	return m
}

// lessen makes a result smaller that its stream does not take, and reports false when nothing is left to leave out.
func lessen(m *nats.Msg) bool {
	const little = 4 << 10
	switch n := len(m.Data); {
	case n > 0 && n <= little:
		m.Data = nil
	case n > 0:
		m.Data = m.Data[:n/2]
	case m.Header.Get("Content-Type") != "":
		delete(m.Header, "Content-Type")
		return true
	default:
		return false
	}
	m.Header[ledger.HeaderBody] = []string{ledger.BodyCut}
	return true
}

func (l *lane) record(j *job, r httpcall.Response, out httpcall.Outcome) *ledger.Record {
	l.mu.Lock()
	tat := max(j.Grant.TAT, l.s.Floor(j.Queue)) // calls of a key end in any order; its newest record must know of all of them
	l.mu.Unlock()
	ahead := l.d.opts.Ahead() // a later process starts with the calendar's clock
	if tat != 0 {
		tat += ahead
	}
	c := &ledger.Record{
		API: j.message.API, Key: j.message.Key, Job: j.message.ID, Dedupe: j.message.DedupeID, Stream: j.part.bucket.Name(), Seq: j.Seq,
		Call: j.Calls, Attempt: j.attempts, Redrives: j.message.Redrives,
		Accepted: j.accepted.Time().UTC(), Planned: (j.At + ahead).Time(), Started: r.Started.UTC(), Ended: r.Ended.UTC(), Sent: r.Sent, Status: r.Status,
		Outcome: out.Name(), Final: out.Verdict == httpcall.Delivered || out.Verdict == httpcall.Dead, Detail: ledger.Clip(out.Detail, ledger.MaxDetail),
		Price: ledger.Money(j.terms.api.Price), Billed: out.Billed, Idempotency: j.terms.api.KeyIdentity(), TAT: tat,
		Limits: j.terms.api.Rules.Names(), Costs: j.charged(), Unsettled: j.unsettled, Instance: l.d.opts.Instance,
	}
	if out.Verdict != httpcall.Delivered && out.Verdict != httpcall.Pushback {
		c.Answer = httpcall.AnswerOf(j.terms.api, r)
	}
	return c
}

// charged are the units that the job's last call took from each shared limit: what is to be told of one that another process
// made is what it was reckoned to cost.
func (j *job) charged() []int64 {
	if j.taken == nil {
		return j.Costs
	}
	return j.taken
}

func (l *lane) letter(t *job, reason deadletter.Reason, detail string, status int, billed deadletter.Billed) *deadletter.Letter {
	j := t.message
	var accepted time.Time
	if t.accepted != 0 {
		accepted = t.accepted.Time()
	}
	return &deadletter.Letter{
		API: l.name, Key: t.Queue.Key, JobID: j.ID, Origin: t.origin(), Reason: reason, Detail: detail,
		Header: j.Header, Body: j.Body, At: time.Now(), Attempts: t.attempts, Status: status, Billed: billed, Keyed: t.doubt.keyed(),
		Redrives: j.Redrives, ReplyTo: j.ReplyTo, Accepted: accepted,
	}
}

package dispatcher

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket"
	"weir/deadletter"
	"weir/ingest"
)

// The streams of what was done.
const (
	ResultsStream = "WEIR_RESULTS"
	CallsStream   = "WEIR_CALLS"

	resultsPrefix = "weir.results."
	callsPrefix   = "weir.calls."
)

// The headers of a result.
const (
	HeaderOutcome    = deadletter.HeaderOutcome
	HeaderStatus     = "Weir-Status"
	HeaderAttempts   = "Weir-Attempts"
	HeaderCalls      = "Weir-Calls"
	HeaderPrice      = "Weir-Price"
	HeaderBody       = "Weir-Body" // BodyCut where the result holds only the beginning of the answer's
	HeaderAcceptedAt = "Weir-Accepted-At"
	HeaderCalledAt   = "Weir-Called-At"
	HeaderFinishedAt = "Weir-Finished-At"
)

// BodyCut says that an answer's body was longer than results may be.
const BodyCut = "cut"

// Bounds of what is copied from an answer and from errors: JetStream stores nothing with headers of more than 64 KiB.
const (
	maxContentType = 1 << 10
	maxDetail      = 1 << 10
	headerRoom     = 64 << 10 // of a message, beside its body
)

// Done is the outcome of a job that has a result.
const Done = "done"

// PushedBack is the outcome of a call that the api answered with "not now".
const PushedBack = "pushback"

// CallRecord is one line of the ledger: one call, whatever came of it. Times are RFC 3339 with nanoseconds.
type CallRecord struct {
	API    string `json:"api"`
	Key    string `json:"key"`
	Job    string `json:"job"`
	Dedupe string `json:"dedupe"` // the submission: a job that was taken and is redriven has another
	Stream string `json:"stream"` // where the job was queued
	Seq    uint64 `json:"seq"`

	Call     int `json:"call"`    // number of this call of the job, from 1
	Attempt  int `json:"attempt"` // calls so far that counted
	Redrives int `json:"redrives,omitempty"`

	Accepted time.Time `json:"accepted"` // by the queue: the job's id is known for as long as dedupe says from then on
	Planned  time.Time `json:"planned"`  // the granted slot
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`

	Sent    bool              `json:"sent"`
	Status  int               `json:"status"`
	Outcome string            `json:"outcome"` // done, retry, pushback, or a dead letter's reason
	Final   bool              `json:"final"`   // the job has ended
	Detail  string            `json:"detail,omitempty"`
	Price   string            `json:"price"`
	Billed  deadletter.Billed `json:"billed"`

	NotBefore bucket.Micros `json:"not_before,omitempty"` // of the next call, if there is to be one

	TAT    bucket.Micros `json:"tat"`              // of the key after this call's grant, by the store's clock: a restart goes on from it
	Limits []string      `json:"limits,omitempty"` // shared by all keys, at the time
	Costs  []int64       `json:"costs,omitempty"`  // the units taken from each of them
	// Unsettled are limits of which the answer was to tell what the call used, and did not: it is charged the most of what
	// was estimated and of what an answer has told.
	Unsettled []string `json:"unsettled,omitempty"`
	Instance  string   `json:"instance"`

	Stored time.Time `json:"-"` // by the server, where the record was read from its stream
}

// Origin names the job's life that the call was made in.
func (c *CallRecord) Origin() string { return originOf(c.Stream, c.Seq, bucket.MicrosOf(c.Accepted)) }

// Units is what the call took from one limit shared by all keys. Of a limit that was not in force then, or of a call
// whose costs nobody knows, it is what every call takes: its price from a budget, one unit from anything else.
func (c *CallRecord) Units(limit *bucket.Limit) int64 {
	if !c.Sent && c.Billed == deadletter.NotBilled {
		return 0 // it never reached the api
	}
	if i := slices.Index(c.Limits, limit.Name); i >= 0 && i < len(c.Costs) {
		return c.Costs[i]
	}
	if limit.Budget == nil {
		return 1
	}
	price, err := strconv.ParseFloat(c.Price, 64)
	if err != nil || c.Billed == deadletter.NotBilled {
		return 0
	}
	return int64(math.Ceil(price * 1e6))
}

// CallsOf is the subject of all records of an api.
func CallsOf(api string) string { return callsPrefix + ingest.Token(api) + ".>" }

// Subject is where the record is published.
func (c *CallRecord) Subject() string {
	return callsPrefix + ingest.Token(c.API) + "." + ingest.Token(c.Key)
}

func (c *CallRecord) message() *nats.Msg {
	data, err := json.Marshal(c)
	if err != nil {
		panic("dispatcher: a record that JSON cannot carry: " + err.Error())
	}
	return &nats.Msg{Subject: c.Subject(), Data: data, Header: nats.Header{
		ingest.HeaderMsgID: {fmt.Sprintf("call.%s.%d", c.Origin(), c.Call)},
	}}
}

// ResultSubject is where results of a key are published.
func ResultSubject(api, key string) string {
	return resultsPrefix + ingest.Token(api) + "." + ingest.Token(key)
}

// originOf names a job for good: where it is queued, and when its stream took it, in microseconds. The sequence alone would
// not do: a server that lost its last writes gives it to another job, and what is stored of that one would be taken for a
// repetition. Both stay what they are over restarts, replicas and moves.
func originOf(stream string, seq uint64, accepted bucket.Micros) string {
	return fmt.Sprintf("%s.%d.%d", stream, seq, accepted)
}

func (t *task) origin() string { return originOf(t.line.part.bucket.Name(), t.seq, t.accepted) }

func resultID(t *task) string { return "result." + t.origin() }

// result renders what a job came to.
func (l *lane) result(t *task, r response) *nats.Msg {
	j := t.job
	h := nats.Header{
		ingest.HeaderMsgID: {resultID(t)},
		ingest.HeaderJobID: {j.ID}, ingest.HeaderAPI: {j.API}, ingest.HeaderKey: {ingest.HeaderText(j.Key)},
		HeaderOutcome: {Done}, HeaderStatus: {strconv.Itoa(r.status)},
		HeaderAttempts: {strconv.Itoa(t.attempts)}, HeaderCalls: {strconv.Itoa(t.calls)},
		HeaderPrice:      {money(t.terms.api.Price)},
		HeaderAcceptedAt: {stamp(t.accepted.Time())}, HeaderCalledAt: {stamp(r.started)}, HeaderFinishedAt: {stamp(r.ended)},
	}
	if v := clip(r.header.Get("Content-Type"), maxContentType); v != "" {
		h["Content-Type"] = []string{v}
	}
	m := &nats.Msg{Subject: ResultSubject(j.API, j.Key), Header: h, Data: r.body}
	if most := max(0, int(l.d.opts.Conn.MaxPayload())-headerRoom); r.more || len(m.Data) > most {
		m.Data = m.Data[:min(len(m.Data), most)]
		h[HeaderBody] = []string{BodyCut}
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
	m.Header[HeaderBody] = []string{BodyCut}
	return true
}

// clip bounds a text by bytes.
func clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

func (l *lane) record(t *task, r response, out outcome) *CallRecord {
	l.mu.Lock()
	tat := max(t.grant.TAT, l.s.floor(t.line)) // calls of a key end in any order; its newest record must know of all of them
	l.mu.Unlock()
	ahead := l.d.opts.Ahead() // a later process starts with the calendar's clock
	if tat != 0 {
		tat += ahead
	}
	c := &CallRecord{
		API: t.job.API, Key: t.job.Key, Job: t.job.ID, Dedupe: t.job.DedupeID, Stream: t.line.part.bucket.Name(), Seq: t.seq,
		Call: t.calls, Attempt: t.attempts, Redrives: t.job.Redrives,
		Accepted: t.accepted.Time().UTC(), Planned: (t.at + ahead).Time(), Started: r.started.UTC(), Ended: r.ended.UTC(), Sent: r.sent, Status: r.status,
		Outcome: out.name(), Final: out.verdict == delivered || out.verdict == dead, Detail: clip(out.detail, maxDetail),
		Price: money(t.terms.api.Price), Billed: out.billed, TAT: tat,
		Limits: t.terms.api.Rules.Names(), Costs: t.taken, Unsettled: t.unsettled, Instance: l.d.opts.Instance,
	}
	return c
}

func (l *lane) letter(t *task, reason deadletter.Reason, detail string, status int, billed deadletter.Billed) *deadletter.Letter {
	j := t.job
	var accepted time.Time
	if t.accepted != 0 {
		accepted = t.accepted.Time()
	}
	return &deadletter.Letter{
		API: l.name, Key: t.line.key, JobID: j.ID, Origin: t.origin(), Reason: reason, Detail: detail,
		Header: j.Header, Body: j.Body, At: time.Now(), Attempts: t.attempts, Status: status, Billed: billed,
		Redrives: j.Redrives, ReplyTo: j.ReplyTo, Accepted: accepted,
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// money writes millionths of the currency unit with at least two decimals.
func money(millionths int64) string {
	s := fmt.Sprintf("%d.%06d", millionths/1e6, millionths%1e6)
	for len(s) > 0 && s[len(s)-1] == '0' && s[len(s)-3] != '.' {
		s = s[:len(s)-1]
	}
	return s
}

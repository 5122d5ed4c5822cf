package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The streams of results and of records of calls.
const (
	ResultsStream = "WEIR_RESULTS"
	CallsStream   = "WEIR_CALLS"

	ResultSubjects ingest.Subjects = "weir.results." // followed by an api and a key
	CallSubjects   ingest.Subjects = "weir.calls."   // followed by an api and a key
)

// The headers of a result.
const (
	HeaderOutcome    = deadletter.HeaderOutcome
	HeaderStatus     = "Weir-Status"
	HeaderAttempts   = "Weir-Attempts"
	HeaderCalls      = "Weir-Calls"
	HeaderPrice      = "Weir-Price"
	HeaderBody       = "Weir-Body" // BodyCut if the result holds only the beginning of the answer's body
	HeaderAcceptedAt = "Weir-Accepted-At"
	HeaderCalledAt   = "Weir-Called-At"
	HeaderFinishedAt = "Weir-Finished-At"
	HeaderFoundBy    = "Weir-Found-By" // FoundByInquiry if the result is not the call's answer
	HeaderReused     = "Weir-Reused"   // the job whose call got this answer, if it is not the result's own job
	HeaderPack       = "Weir-Pack"     // the idempotency key of the call, if the call was made for several jobs
	HeaderRequest    = "Weir-Request"  // the reuse.Sum of the request, if the answer may be given again
)

// BodyCut says that an answer's body was longer than results may be.
const BodyCut = "cut"

// Bounds of what is copied from an answer and from errors: JetStream stores no message with headers of more than
// 64 KiB.
const (
	MaxContentType = 1 << 10
	MaxDetail      = 1 << 10
	HeaderRoom     = 64 << 10 // room for a message's headers
)

// FoundByInquiry says that the call got no answer, but that the api later reported the call as processed. The result's
// body is the answer to that inquiry.
const FoundByInquiry = "inquiry"

// Asked is the outcome in the record of an inquiry.
const Asked = "inquiry"

// Done is the outcome of a job that has a result.
const Done = "done"

// Reused is the outcome in the record of a job that got the answer of an equal job and was not called.
const Reused = "reused"

// PushedBack is the outcome of a call that the api answered with "not now".
const PushedBack = "pushback"

// Submitted is the outcome of a call with which the api began an operation.
const Submitted = "submitted"

// Record is one line of the ledger: one call, whatever came of it. There are also records of inquiries about calls, and
// of jobs that ended with the answer of another job. Times are RFC 3339 with nanoseconds.
type Record struct {
	API    string `json:"api"`
	Key    string `json:"key"`
	Job    string `json:"job"`
	Dedupe string `json:"dedupe"` // names the submission: a redriven job has another
	Stream string `json:"stream"` // the stream where the job was queued
	Seq    uint64 `json:"seq"`

	Call     int `json:"call"`    // number of this call of the job, from 1
	Attempt  int `json:"attempt"` // calls so far that counted as attempts
	Redrives int `json:"redrives,omitempty"`
	// From is the number of the letter that the job was first redriven from.
	From uint64 `json:"redriven_from,omitempty"`
	// Trace is the job's traceparent, as its producer sent it.
	Trace string `json:"traceparent,omitempty"`

	Accepted time.Time `json:"accepted"` // when the queue took the job: dedupe counts from then on
	Planned  time.Time `json:"planned"`  // the granted slot
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`

	Sent    bool              `json:"sent"`
	Status  int               `json:"status"`
	Outcome string            `json:"outcome"` // done, retry, pushback, denied, submitted, a dead letter's reason, inquiry, or reused
	Final   bool              `json:"final"`   // the job has ended
	Detail  string            `json:"detail,omitempty"`
	Price   string            `json:"price"`
	Billed  deadletter.Billed `json:"billed"`
	// Idempotency is the CallIdentity under which the call was made: the api takes calls of a job under one KeyIdentity
	// for one call, as long as it knows the key.
	Idempotency string `json:"idempotency,omitempty"`

	NotBefore bucket.Micros `json:"not_before,omitempty"` // of the next call, if there will be one, by the wall clock

	TAT    bucket.Micros `json:"tat"`              // of the key after this grant, by the store's clock, for a restart
	Limits []string      `json:"limits,omitempty"` // limits shared by all keys at the time
	Costs  []int64       `json:"costs,omitempty"`  // the units taken from each of Limits
	// Reserved holds the units that were reserved from each of Limits, if the call took more of one.
	Reserved []int64 `json:"reserved,omitempty"`
	// Estimated holds the units of each of Limits that the job itself was estimated to take, if the call took more of
	// one. A later process raises its reservations by that.
	Estimated []int64 `json:"estimated,omitempty"`
	// Usage holds the numbers of the answer that are counted for reports (httpcall.UsageCounter), by name.
	Usage map[string]int64 `json:"usage,omitempty"`
	// Unsettled lists the limits whose units the answer should have reported, and did not. Such a limit is charged the
	// larger of the estimate and the most that any answer has reported.
	Unsettled []string `json:"unsettled,omitempty"`
	Instance  string   `json:"instance"`
	// Inquiry is the api's answer to an inquiry about the job's last call: processed, not_processed or unknown. Such a
	// record describes the inquiry, which took its units from the limits and cost nothing. Billed is what is known of
	// the call since then. "": the record is of a call.
	Inquiry string `json:"inquiry,omitempty"`
	// Operation is what the api began when it accepted the call, if the outcome is submitted.
	Operation *queue.Operation `json:"operation,omitempty"`
	// Polled says that the record is not of a call: it is of the end of the job's operation, or of an inquiry about the
	// operation. It took no slot. The record of an end has only the units beyond those that the call was charged, as
	// the final answer reports them.
	Polled bool `json:"polled,omitempty"`
	// ReusedFrom is the job whose answer this job got without a call, if the outcome is Reused. Call is 0 then.
	ReusedFrom string `json:"reused_from,omitempty"`
	// Saved is what a call of this job would have cost, as far as the job alone tells that, if the outcome is Reused.
	Saved string `json:"saved,omitempty"`
	// Pack is the pack that the call was for. The record of the job at place 0 has the units that the call took, the
	// others only their parts of the price. nil: the call was for this job alone.
	Pack *queue.Pack `json:"pack,omitempty"`
	// HeldFor is the cause that kept the job waiting longest between its last call, or its acceptance, and this call.
	// Its key's rate and the jobs before it do not count. HeldMS is for how long. Both are left out if no such cause
	// took a tenth of the wait. HeldLimit names the limit if HeldFor is "limit".
	HeldFor   string `json:"held_for,omitempty"`
	HeldLimit string `json:"held_limit,omitempty"`
	HeldMS    int64  `json:"held_ms,omitempty"`
	// Result is the sequence of the job's result in its stream, if the call ended the job with one. The record of an
	// inquiry has none, because it is stored before the result.
	Result uint64 `json:"result,omitempty"`
	// Answer is the api's answer, if the call neither completed the job nor was only pushed back. Its body is
	// cut when it is stored.
	Answer *deadletter.Answer `json:"answer,omitempty"`

	Stored time.Time `json:"-"` // by the server, if the record was read from its stream
	At     uint64    `json:"-"` // its sequence there
}

// Origin names the life of the job in which the call was made.
func (c *Record) Origin() string { return OriginOf(c.Stream, c.Seq, bucket.MicrosOf(c.Accepted)) }

// Units returns what the call took from one limit that all keys share. If the limit was not in force at the call, or
// the call's costs are not known, it returns what every call takes: its price from a budget, and one unit from any
// other limit.
func (c *Record) Units(limit *bucket.Limit) int64 {
	if !c.Sent && c.Billed == deadletter.NotBilled {
		return 0 // the call never reached the api
	}
	if i := slices.Index(c.Limits, limit.Name); i >= 0 && i < len(c.Costs) {
		return c.Costs[i]
	}
	if c.Polled || c.Pack.Follows() && limit.Budget == nil {
		return 0
	}
	if limit.Budget == nil {
		return 1
	}
	price, ok := ParseMoney(c.Price)
	if !ok || c.Billed == deadletter.NotBilled {
		return 0
	}
	return price
}

// Beyond returns how many more units of a limit the call took than it had reserved. The end of an operation has
// reserved nothing, so all of its Units count.
func (c *Record) Beyond(limit *bucket.Limit) int64 {
	units := c.Units(limit)
	if c.Polled {
		return units
	}
	if i := slices.Index(c.Limits, limit.Name); i >= 0 && i < len(c.Reserved) {
		return max(0, units-c.Reserved[i])
	}
	return 0
}

// CallsOf returns the subject of all records of an api.
func CallsOf(api string) string { return CallSubjects.Below(api) }

// Subject returns the subject on which the record is published.
func (c *Record) Subject() string {
	return CallSubjects.Of(c.API, c.Key)
}

// Message returns the message that stores the record. Its message id keeps the record from being stored twice.
func (c *Record) Message() *nats.Msg {
	stored := c
	if c.Answer != nil {
		clipped := *c
		clipped.Answer, stored = c.Answer.Clip(recordedAnswer), &clipped
	}
	data, err := json.Marshal(stored)
	if err != nil {
		panic("ledger: a record that JSON cannot carry: " + err.Error()) // a time beyond the year 9999
	}
	id := "call." + c.Origin() + "." + strconv.Itoa(c.Call)
	switch {
	case c.Inquiry != "":
		id = fmt.Sprintf("inquiry.%s.%d", c.Origin(), c.Started.UnixMicro())
	case c.Polled:
		id = "end." + c.Origin()
	}
	return &nats.Msg{Subject: c.Subject(), Data: data, Header: nats.Header{ingest.HeaderMsgID: {id}}}
}

// ErrUnreadable says that a record of the ledger cannot be read, so that it is not known what its call took.
var ErrUnreadable = errors.New("a record of the ledger cannot be read")

// parse parses a record from its stream. Only weir writes there. parse fails if the record is torn, or names another
// api or key than its subject.
func parse(subject string, data []byte) (*Record, error) {
	var c Record
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if c.Subject() != subject {
		return nil, fmt.Errorf("%w: it names another key than its subject", ErrUnreadable)
	}
	return &c, nil
}

// readRecord is parse for a message that was delivered.
func readRecord(msg jetstream.Msg, meta *jetstream.MsgMetadata) (*Record, error) {
	c, err := parse(msg.Subject(), msg.Data())
	if err != nil {
		return nil, fmt.Errorf("%w: number %d", err, meta.Sequence.Stream)
	}
	c.Stored, c.At = meta.Timestamp, meta.Sequence.Stream
	return c, nil
}

// ResultSubject returns the subject on which results of a key are published.
func ResultSubject(api, key string) string {
	return ResultSubjects.Of(api, key)
}

// OriginOf returns the permanent name of a job: the stream in which it is queued, its sequence there, and when the
// stream took it, in microseconds. The sequence alone is not enough: a server that lost its last writes gives it to
// another job, and what is stored about that job would count as a repetition. The name stays the same over restarts,
// replicas and moves.
func OriginOf(stream string, seq uint64, accepted bucket.Micros) string {
	const numbers = 2 * len(".18446744073709551615")
	name := append(make([]byte, 0, len(stream)+numbers), stream...)
	name = strconv.AppendUint(append(name, '.'), seq, 10)
	return string(strconv.AppendInt(append(name, '.'), int64(accepted), 10))
}

// Clip cuts a text to at most most bytes.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

// Stamp formats a time as records and results do.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Money writes an amount in millionths of the currency unit, with at least two decimals.
func Money(millionths int64) string {
	const decimals = 6
	s := strconv.AppendInt(make([]byte, 0, len("9223372036854.775807")), millionths/1e6, 10)
	units := len(s)
	s = strconv.AppendInt(s, 1e6+millionths%1e6, 10) // the added million keeps the zeros after the point
	s[units] = '.'
	for end := units + decimals; end > units+2 && s[end] == '0'; end-- {
		s = s[:end]
	}
	return string(s)
}

// Took returns what a call took from a limit. in is false if the limit was not in force when the call was made.
func (c *Record) Took(limit *bucket.Limit) (units int64, in bool) {
	for _, name := range c.Limits {
		if name == limit.Name {
			return c.Units(limit), true
		}
	}
	return 0, false
}

// recordedAnswer is how much of an answer's body the record keeps. A letter usually gets more of it. But if a letter is
// written again after a crash, or its last call had no answer, it takes the answer from the ledger. Whole answers would
// use up the room of the ledger's records.
const recordedAnswer = 1 << 10

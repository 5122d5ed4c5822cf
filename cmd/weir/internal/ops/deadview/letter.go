package deadview

import (
	"encoding/base64"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"weir/cmd/weir/internal/ops/jobstory"
	"weir/deadletter"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// Letter is a dead letter as JSON. A listed letter has no headers, answer, call or body.
type Letter struct {
	Seq      uint64            `json:"seq"`
	Stored   time.Time         `json:"stored"`
	API      string            `json:"api"`
	AskedAPI string            `json:"asked_api,omitempty"` // if api is "": the name that its producer gave
	Key      string            `json:"key"`
	Job      string            `json:"job"`
	Reason   deadletter.Reason `json:"reason"`
	Detail   string            `json:"detail"`
	Status   int               `json:"status"`
	Billed   deadletter.Billed `json:"billed"`
	Attempts int               `json:"attempts"`
	Redrives int               `json:"redrives"`
	Refusals int               `json:"refusals,omitempty"` // how often it was refused when the letter was written; absent if once
	Size     int               `json:"size"`               // of the body
	// BodyLeftOut reports that the job's body is not kept: it was too large, or was lost with the store of its queue.
	BodyLeftOut bool                `json:"body_left_out,omitempty"`
	Headers     map[string][]string `json:"headers,omitempty"`
	Answer      *Answer             `json:"answer,omitempty"`
	Call        *Call               `json:"call,omitempty"` // the job's last call that was sent
	// HasOperation says that the last call began an operation, which the api can be asked about.
	HasOperation bool `json:"has_operation,omitempty"`
	// Operation is where the api is asked about the operation that the last call began.
	Operation string `json:"operation,omitempty"`
	jobstory.Body
}

// Answer is what an api answered.
type Answer struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
	Encoding    string `json:"encoding"` // of body: text or base64
	Cut         bool   `json:"cut"`      // the body was longer
}

// Call is what is known of a letter's last call.
type Call struct {
	StartedAt  *time.Time            `json:"started_at,omitempty"`
	WroteAt    *time.Time            `json:"wrote_at,omitempty"` // the last of the request
	Bytes      *int64                `json:"sent_bytes,omitempty"`
	Connection deadletter.Connection `json:"connection,omitempty"`
	EndedAt    *time.Time            `json:"ended_at,omitempty"`
	CutBy      deadletter.Cutter     `json:"cut_by,omitempty"` // absent: there was an answer
}

// Of returns a letter in the form for lists.
func Of(k *deadletter.Kept) Letter {
	return Letter{
		Seq: k.Seq, Stored: k.Stored.UTC(), API: k.API, AskedAPI: k.AskedAPI, Key: k.Key, Job: k.JobID, Reason: k.Reason, Detail: k.Detail,
		Status: k.Status, Billed: k.Billed, Attempts: k.Attempts, Redrives: k.Redrives, Refusals: k.Refusals, Size: k.Size, BodyLeftOut: k.BodyLeftOut,
		HasOperation: k.Operation != "",
	}
}

// Whole returns a letter with everything that is stored about it.
func Whole(k *deadletter.Kept) Letter {
	l := Of(k)
	l.Headers, l.Body, l.Answer, l.Call = JobHeaders(k.Header), jobstory.BodyOf(k.Body), AnswerOf(k.Answer), callOf(k.Call)
	l.Operation = k.Operation
	return l
}

// Covered returns a letter without the contents of its job and of the api's answer. It has no bodies, and the names of
// headers without their values.
func Covered(k *deadletter.Kept) Letter {
	l := Of(k)
	l.Answer, l.Call = AnswerOf(k.Answer), callOf(k.Call)
	if l.Answer != nil {
		l.Answer.Body = ""
	}
	l.Headers = JobHeaders(k.Header)
	for name := range l.Headers {
		l.Headers[name] = []string{}
	}
	return l
}

// JobHeaders returns the headers that came with the job. The letter's own headers are fields of Letter.
func JobHeaders(h nats.Header) map[string][]string {
	own := map[string][]string{}
	for name, values := range h {
		lower := strings.ToLower(name)
		if !strings.HasPrefix(lower, "weir-dead-") && !deadletter.OfAnswer(name) && !strings.HasPrefix(lower, "nats-") && name != ingest.HeaderAPI &&
			name != ingest.HeaderKey && name != ingest.HeaderJobID && name != ingest.HeaderRedrives {
			own[name] = values
		}
	}
	return own
}

// AnswerOf returns an api's answer in its JSON form. It returns nil if there was no answer.
func AnswerOf(a *deadletter.Answer) *Answer {
	if a == nil {
		return nil
	}
	j := &Answer{Status: a.Status, ContentType: a.ContentType, Body: string(a.Body), Encoding: "text", Cut: a.Cut}
	if !IsText(a.Body) {
		j.Body, j.Encoding = base64.StdEncoding.EncodeToString(a.Body), "base64"
	}
	return j
}

func callOf(c *deadletter.LastCall) *Call {
	if c == nil {
		return nil
	}
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return new(t.UTC())
	}
	j := &Call{StartedAt: at(c.Started), WroteAt: at(c.Wrote), EndedAt: at(c.Ended), Connection: c.Connection, CutBy: c.CutBy}
	if c.Bytes >= 0 {
		j.Bytes = &c.Bytes
	}
	return j
}

// IsText reports whether a terminal can show a body safely: whether it is UTF-8 without control characters.
func IsText(body []byte) bool {
	return utf8.Valid(body) && strings.IndexFunc(string(body), func(r rune) bool {
		return !unicode.IsPrint(r) && !unicode.IsSpace(r)
	}) < 0
}

package ingest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Code is what a refused producer is told; its last three digits follow HTTP, and it is the err_code of the answer.
type Code int

// The refusals. Every one leaves a dead letter but Unavailable, and Unsure: then the job may be stored, and the only
// honest answer is none, so that its producer sends it again under the same id.
const (
	Unsure      Code = 0
	Invalid     Code = 20400
	UnknownAPI  Code = 20404
	TooLarge    Code = 20413
	Throttled   Code = 20429
	Unavailable Code = 20503
)

// Status is the code as HTTP has it: 429 of Throttled.
func (c Code) Status() int { return int(c) % 1000 }

// Refusal is why a job was not taken. It is an error whose text is fit for the producer: it never holds a payload, a
// secret or an address.
type Refusal struct {
	Code        Code
	Description string
	// Depth and Capacity of the bucket, for Throttled.
	Depth, Capacity int64
	// RetryAfter is when to come back, for Throttled: never less than a millisecond.
	RetryAfter time.Duration
	// Job and LetterSeq are the job's id and the number of its dead letter, as a producer is told; empty until then.
	Job       string
	LetterSeq uint64
}

func (r *Refusal) Error() string { return r.Description }

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Description: fmt.Sprintf(format, args...)}
}

// WithRetry is a Throttled refusal whose description also says when to come back: most clients reach nothing else of an answer.
func (r Refusal) WithRetry() *Refusal {
	r.Description += "; try again in " + waitText(time.Duration(r.RetryAfterMS())*time.Millisecond)
	return &r
}

// waitText writes a wait for people, rounded up: 850 ms, 9.8 s, 12 min.
func waitText(d time.Duration) string {
	up := func(unit time.Duration) int64 { return int64((d + unit - 1) / unit) }
	switch {
	case d <= 999*time.Millisecond:
		return fmt.Sprintf("%d ms", up(time.Millisecond))
	case d <= 2*time.Minute:
		return fmt.Sprintf("%.1f s", float64(up(100*time.Millisecond))/10)
	case d <= 2*time.Hour:
		return fmt.Sprintf("%d min", up(time.Minute))
	}
	return fmt.Sprintf("%d h", up(time.Hour))
}

// Receipt is the promise to a producer: the job is stored. Its JSON form is what any NATS client takes for a PubAck.
type Receipt struct {
	Stream    string `json:"stream"`
	Seq       uint64 `json:"seq"`
	Job       string `json:"job"`
	Key       string `json:"key"`
	Duplicate bool   `json:"duplicate,omitempty"`
	// OverSoft says that an admission limit let the job in only within its soft part.
	OverSoft bool `json:"over_soft,omitempty"`
	// Position counts the unfinished jobs of the key up to and with this one; 0 for a job that is finished.
	Position int `json:"position"`
	// ETA is when its call should start; zero when unknown or finished.
	ETA time.Time `json:"-"`
}

// etaLayout keeps milliseconds, and keeps them when they are zero.
const etaLayout = "2006-01-02T15:04:05.000Z07:00"

// receiptAnswer is the wire form of a receipt.
type receiptAnswer struct {
	Receipt
	ETA   string `json:"eta,omitempty"`
	ETAms *int64 `json:"eta_ms,omitempty"`
}

// Answer renders the receipt for the producer at the time now.
func (r Receipt) Answer(now time.Time) []byte {
	w := receiptAnswer{Receipt: r}
	if !r.ETA.IsZero() {
		ms := max(0, r.ETA.Sub(now).Milliseconds())
		w.ETA, w.ETAms = r.ETA.UTC().Format(etaLayout), &ms
	}
	return mustJSON(w)
}

// refusalAnswer is the wire form of a refusal. Inside "error" stand only the three members every NATS client knows:
// nats.py fails on any other.
type refusalAnswer struct {
	Error struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Stream        string `json:"stream"`
	Seq           uint64 `json:"seq"`
	Job           string `json:"job,omitempty"`
	Key           string `json:"key,omitempty"`
	RetryAfterMS  int64  `json:"retry_after_ms,omitempty"`
	DeadLetterSeq uint64 `json:"dead_letter_seq,omitempty"`
}

// Answer is what the intake says of a job: a receipt, or a refusal.
type Answer struct {
	// Data is what a producer is told over NATS. It is nil where nobody knows whether the job was stored: then the refusal's code is
	// Unsure, and the job is to be sent again under the same id.
	Data    []byte
	Receipt Receipt  // where Refusal is nil
	Refusal *Refusal // with the job's id and the number of its letter
}

func (r *Refusal) answer(stream, job, key string, letterSeq uint64) Answer {
	var w refusalAnswer
	w.Error.Code = r.Code.Status()
	w.Error.ErrCode = int(r.Code)
	w.Error.Description = r.Description
	w.Stream, w.Job, w.Key = stream, job, key
	w.RetryAfterMS = r.RetryAfterMS()
	w.DeadLetterSeq = letterSeq
	told := *r
	told.Job, told.LetterSeq = job, letterSeq
	return Answer{Data: mustJSON(w), Refusal: &told}
}

// longestErrorHeader bounds the description in a header, in bytes; the answer's body has all of it.
const longestErrorHeader = 512

// header tells a refusal as NATS' micro services tell errors, for tools and clients that look there. There is no status line: clients
// take one for an error of the server.
func (r *Refusal) header() nats.Header {
	return nats.Header{
		HeaderError:     {asciiLine(r.Description, longestErrorHeader)},
		HeaderErrorCode: {strconv.Itoa(r.Code.Status())},
	}
}

// asciiLine writes bytes that not every client can read in a header as %XX, and stops before it is longer than most.
func asciiLine(text string, most int) string {
	line := make([]byte, 0, len(text))
	for i := range len(text) {
		if c := text[i]; c >= ' ' && c <= '~' {
			line = append(line, c)
		} else {
			line = fmt.Appendf(line, "%%%02X", c)
		}
		if len(line) > most {
			return string(line[:most])
		}
	}
	return string(line)
}

// RetryAfterMS is RetryAfter as producers are told it: rounded up, and at least 1 where they may come back at all.
func (r *Refusal) RetryAfterMS() int64 {
	if r.Code != Throttled {
		return 0
	}
	return max(1, int64((r.RetryAfter+time.Millisecond-1)/time.Millisecond))
}

func mustJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // people read descriptions
	if err := enc.Encode(v); err != nil {
		panic("ingest: an answer that JSON cannot carry: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// queuePrefix begins the names of the streams that keep jobs, and so of those that a receipt names.
const queuePrefix = "WEIR_"

// ForeignAnswer is an error: a stream that takes weir's subjects has answered a job before weir, if a weir runs there at all. Its
// acknowledgement is no receipt, and weir's own answer came too late to be heard. Nobody knows whether weir took the job.
type ForeignAnswer struct {
	Stream  string // that answered; empty where it does not say
	Refused string // what the stream said where it refused the job; empty: it acknowledged it
}

func (f *ForeignAnswer) Error() string {
	who := "something that is not weir"
	if f.Stream != "" {
		who = "stream " + clip(f.Stream)
	}
	what := "acknowledged the job"
	if f.Refused != "" {
		what = "refused the job (" + f.Refused + ")"
	}
	return fmt.Sprintf("%s %s in weir's place: it must not take %s>", who, what, SubjectPrefix)
}

// ourCode reports whether an answer's error code is one of weir's. JetStream's own are all below them.
func ourCode(code int) bool {
	switch Code(code) {
	case Invalid, UnknownAPI, TooLarge, Throttled, Unavailable:
		return true
	case Unsure:
	}
	return false
}

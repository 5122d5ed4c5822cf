package client

import (
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

// Answer renders the refusal for the producer: where its job would have gone, whose it is, and the number of its letter.
func (r *Refusal) Answer(stream, job, key string, letterSeq uint64) []byte {
	var w refusalAnswer
	w.Error.Code = r.Code.Status()
	w.Error.ErrCode = int(r.Code)
	w.Error.Description = r.Description
	w.Stream, w.Job, w.Key = stream, job, key
	w.RetryAfterMS = r.RetryAfterMS()
	w.DeadLetterSeq = letterSeq
	return mustJSON(w)
}

// longestErrorHeader bounds the description in a header, in bytes; the answer's body has all of it.
const longestErrorHeader = 512

// Headers tells a refusal as NATS' micro services tell errors, for tools and clients that look there. There is no status line: clients
// take one for an error of the server.
func (r *Refusal) Headers() nats.Header {
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

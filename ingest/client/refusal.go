package client

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Code is the code of a refusal: the err_code of its answer. Its last three digits are an HTTP status.
type Code int

// The codes of refusals. A refusal leaves a dead letter, except for Unavailable, for Unsure, and for Throttled of a job
// with HeaderThrottled. Unavailable means that this submission stored nothing; an earlier one under the same id may
// have. Unsure means that the job may be stored: the intake must not answer, so that the producer sends the job again
// under the same id.
const (
	Unsure      Code = 0
	Invalid     Code = 20400
	UnknownAPI  Code = 20404
	TooLarge    Code = 20413
	Throttled   Code = 20429
	Unavailable Code = 20503
)

// Status returns the HTTP status of the code: 429 for Throttled.
func (c Code) Status() int { return int(c) % 1000 }

// Refusal is the error that says why a job was not accepted. Its text may be shown to the producer: it never contains a
// payload, a secret or an address.
type Refusal struct {
	Code        Code
	Description string
	// Depth and Capacity are the bucket's, in jobs. They are set for Throttled.
	Depth, Capacity int64
	// RetryAfter is how long to wait before the job is submitted again, for Throttled: at least 1 ms.
	RetryAfter time.Duration
	// Job and LetterSeq are the job's id and the sequence of its dead letter. They are set when the refusal becomes an
	// answer.
	Job       string
	LetterSeq uint64
}

func (r *Refusal) Error() string { return r.Description }

// WithRetry returns a copy of a Throttled refusal whose description also says how long to wait, because most clients
// show only the description.
func (r Refusal) WithRetry() *Refusal {
	r.Description += "; try again in " + waitText(time.Duration(r.RetryAfterMS())*time.Millisecond)
	return &r
}

// waitText writes a duration for people, rounded up, as in 850 ms, 9.8 s or 12 min.
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

// refusalAnswer is the wire form of a refusal. "error" must have only the three members that every NATS client knows,
// because nats.py fails on others.
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

// Answer renders the refusal as JSON for the producer. stream is the one that would have stored the job, and letterSeq
// the sequence of its letter.
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

// longestErrorHeader bounds the description in a header, in bytes. The answer's body has the whole description.
const longestErrorHeader = 512

// Headers returns the headers in which NATS micro services report errors. It sets no status line, because clients take
// one for an error of the server.
func (r *Refusal) Headers() nats.Header {
	return nats.Header{
		HeaderError:     {asciiLine(r.Description, longestErrorHeader)},
		HeaderErrorCode: {strconv.Itoa(r.Code.Status())},
	}
}

// asciiLine returns text with %XX for each byte that is not printable ASCII, as some clients require in a header.
// most is the maximum length of the line, in bytes: asciiLine cuts off the rest.
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

// RetryAfterMS returns RetryAfter in milliseconds, rounded up and at least 1. It is 0 unless the code is Throttled.
func (r *Refusal) RetryAfterMS() int64 {
	if r.Code != Throttled {
		return 0
	}
	return max(1, int64((r.RetryAfter+time.Millisecond-1)/time.Millisecond))
}

package client

import (
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// Code is the code of a refusal and the err_code of its answer. Its last three digits follow HTTP.
type Code int

// The codes of refusals. Every refusal leaves a dead letter, except Unavailable, Unsure, and Throttled of a job with
// HeaderThrottled. Unavailable says that this submission stored nothing; an earlier one under the same id may have.
// Unsure means that the job may be stored: the intake must not answer, so that the producer sends the job again under
// the same id.
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

// Refusal is why a job was not accepted. It is an error whose text is safe to show the producer: it never contains a
// payload, a secret or an address.
type Refusal struct {
	Code        Code
	Description string
	// Depth and Capacity are those of the bucket, for Throttled.
	Depth, Capacity int64
	// RetryAfter is when to submit the job again, for Throttled: at least 1 ms.
	RetryAfter time.Duration
	// Job and LetterSeq are the job's id and the sequence of its dead letter. They are empty until the answer is made.
	Job       string
	LetterSeq uint64
}

func (r *Refusal) Error() string { return r.Description }

// WithRetry returns a Throttled refusal whose description also says when to submit again. Most clients expose nothing
// but the description.
func (r Refusal) WithRetry() *Refusal {
	r.Description += "; try again in " + waitText(time.Duration(r.RetryAfterMS())*time.Millisecond)
	return &r
}

// waitText writes a duration for people, rounded up: 850 ms, 9.8 s, 12 min.
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

// refusalAnswer is the wire form of a refusal. "error" must hold only the three members that every NATS client knows:
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

// Answer renders the refusal for the producer, with the stream that the job would have gone to, its id and key, and the
// sequence of its letter.
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

// longestErrorHeader bounds the description in a header, in bytes. The body of the answer has all of it.
const longestErrorHeader = 512

// Headers returns the headers by which NATS micro services report errors, for tools and clients that look there. It
// sets no status line: clients take one for an error of the server.
func (r *Refusal) Headers() nats.Header {
	return nats.Header{
		HeaderError:     {asciiLine(r.Description, longestErrorHeader)},
		HeaderErrorCode: {strconv.Itoa(r.Code.Status())},
	}
}

// asciiLine returns text as some clients need it in a header: with %XX for each byte that is not printable ASCII. It
// cuts the line after most bytes.
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

// RetryAfterMS returns RetryAfter in milliseconds for the producer: rounded up, and at least 1 if the producer may
// submit again at all.
func (r *Refusal) RetryAfterMS() int64 {
	if r.Code != Throttled {
		return 0
	}
	return max(1, int64((r.RetryAfter+time.Millisecond-1)/time.Millisecond))
}

package httpintake

import (
	"encoding/json"
	"net/http"
	"time"

	"weir/cmd/weir/internal/httpd/console"
	"weir/ingest"
)

// Problem is a refusal in the format of RFC 9457. Its further members are those of the answer on NATS.
type Problem struct {
	console.Problem

	Stream        string   `json:"stream,omitempty"`
	Job           string   `json:"job,omitempty"`
	Key           string   `json:"key,omitempty"`
	RetryAfterMS  int64    `json:"retry_after_ms,omitempty"`  // with 429: when to come back
	DeadLetterSeq uint64   `json:"dead_letter_seq,omitempty"` // the number of the job's dead letter; absent if it has none
	Keys          []string `json:"keys,omitempty"`            // of a job's id that exists under several keys
}

// quotaExceeded is the problem type of the IETF's draft of the RateLimit headers.
const quotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// comeBack is the Retry-After of an answer if weir knows no better time.
const comeBack = time.Second

func refuse(status int, detail string) *Problem {
	return &Problem{Problem: *console.NewProblem(status, "%s", detail)}
}

func unavailable(detail string) *Problem {
	p := refuse(http.StatusServiceUnavailable, detail)
	p.RetryAfter = comeBack
	return p
}

// unsure returns the problem for a job that may or may not have been stored. A 503 would say that the job was not
// stored.
func unsure(job string) *Problem {
	p := refuse(http.StatusGatewayTimeout, "the job may have been stored: ask at the address in Location, or send it again with its id (job) as Idempotency-Key")
	p.RetryAfter, p.Job = comeBack, job
	return p
}

// refused returns the problem for a job that the intake refused.
func refused(a *ingest.Answer) *Problem {
	var told struct {
		Stream string `json:"stream"`
		Key    string `json:"key"`
	}
	_ = json.Unmarshal(a.Data, &told) // the intake has written it
	p := refuse(a.Refusal.Code.Status(), a.Refusal.Description)
	p.Stream, p.Key, p.Job, p.DeadLetterSeq = told.Stream, told.Key, a.Refusal.Job, a.Refusal.LetterSeq
	switch a.Refusal.Code {
	case ingest.Throttled:
		p.Type, p.RetryAfterMS = quotaExceeded, a.Refusal.RetryAfterMS()
		p.RetryAfter = time.Duration(p.RetryAfterMS) * time.Millisecond
	case ingest.Unavailable:
		p.RetryAfter = comeBack
	case ingest.Unsure, ingest.Invalid, ingest.UnknownAPI, ingest.TooLarge:
	}
	return p
}

// write answers with the problem and returns its status.
func (p *Problem) write(w http.ResponseWriter) int {
	console.WriteProblem(w, &p.Problem, p)
	return p.Status
}

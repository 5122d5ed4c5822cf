package jobstory

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// Body is a body as JSON can contain it. Only one of its two fields is set.
type Body struct {
	Text   *string `json:"body,omitempty"`
	Base64 string  `json:"body_base64,omitempty"`
}

// BodyOf returns a body in its JSON form: as text if it is UTF-8, otherwise in base64.
func BodyOf(data []byte) Body {
	if utf8.Valid(data) {
		text := string(data)
		return Body{Text: &text}
	}
	return Body{Base64: base64.StdEncoding.EncodeToString(data)}
}

// End is a job's end as JSON, made from a result or from the notice of a letter.
type End struct {
	Job         string `json:"job"`
	Outcome     string `json:"outcome"`
	Status      int    `json:"status"`
	Attempts    int    `json:"attempts"`
	Calls       int    `json:"calls,omitempty"`
	Price       string `json:"price,omitempty"`
	AcceptedAt  string `json:"accepted_at,omitempty"`
	CalledAt    string `json:"called_at,omitempty"`
	FinishedAt  string `json:"finished_at,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Reused      string `json:"reused,omitempty"` // the job whose answer it is, if this one was not called
	Pack        string `json:"pack,omitempty"`   // of the call, if it was for several jobs
	Detail      string `json:"detail,omitempty"` // of a letter
	Billed      string `json:"billed,omitempty"` // of a letter
	Body
}

// KeptResult is a kept result as JSON.
type KeptResult struct {
	Seq    uint64    `json:"seq"`
	Stored time.Time `json:"stored"`
	API    string    `json:"api"`
	Key    string    `json:"key"`
	Size   int       `json:"size"` // of the body
	End
}

// ResultOf returns a result in its JSON form. It includes the body only if r has the whole body.
func ResultOf(r *ledger.Result) KeptResult {
	end := EndOf(&nats.Msg{Header: r.Header, Data: r.Body})
	if len(r.Body) < r.Size {
		end.Body = Body{}
	}
	return KeptResult{Seq: r.Seq, Stored: r.Stored.UTC(), API: r.API, Key: r.Key, Size: r.Size, End: end}
}

// EndOf decodes the message that reports a job's end.
func EndOf(msg *nats.Msg) End {
	h := msg.Header
	number := func(name string) int {
		n, err := strconv.Atoi(h.Get(name))
		if err != nil {
			return 0
		}
		return n
	}
	end := End{
		Job: h.Get(ingest.HeaderJobID), Outcome: h.Get(ledger.HeaderOutcome), Status: number(ledger.HeaderStatus),
		Attempts: number(ledger.HeaderAttempts), Calls: number(ledger.HeaderCalls), Price: h.Get(ledger.HeaderPrice),
		AcceptedAt: h.Get(ledger.HeaderAcceptedAt), CalledAt: h.Get(ledger.HeaderCalledAt),
		FinishedAt: h.Get(ledger.HeaderFinishedAt), ContentType: h.Get("Content-Type"), Reused: h.Get(ledger.HeaderReused),
		Pack: h.Get(ledger.HeaderPack),
	}
	if end.Outcome == ledger.Done {
		end.Body = BodyOf(msg.Data)
		return end
	}
	end.Status, end.Attempts = number(deadletter.HeaderStatus), number(deadletter.HeaderAttempts)
	end.Detail, end.Billed = h.Get(deadletter.HeaderDetail), h.Get(deadletter.HeaderBilled)
	return end
}

// ResultSeq returns the sequence of the job's newest result, 0 if it has no result.
func (j *Job) ResultSeq() (seq uint64) {
	for i := range j.Steps {
		if s := &j.Steps[i]; s.What == Result {
			seq = max(seq, s.Seq)
		}
	}
	return seq
}

// TookText formats how long a job waited for its last call, and how long after that the job was done, by the headers of
// its end. If the job got the answer of another job, TookText names that job.
func TookText(h nats.Header) string {
	at := func(name string) time.Time {
		t, err := time.Parse(time.RFC3339Nano, h.Get(name))
		if err != nil {
			return time.Time{}
		}
		return t
	}
	called := at(ledger.HeaderCalledAt)
	if of := h.Get(ledger.HeaderReused); of != "" {
		finished := at(ledger.HeaderFinishedAt)
		return fmt.Sprintf("no call, waited %s for the answer of job %s, which is %s old",
			cli.Brief(finished.Sub(at(ledger.HeaderAcceptedAt))),
			cli.Visible(of), cli.Brief(finished.Sub(called)))
	}
	calls := h.Get(ledger.HeaderCalls) + " calls"
	if calls == "1 calls" {
		calls = "1 call"
	}
	return fmt.Sprintf("%s, waited %s, done %s after the call began", calls, cli.Brief(called.Sub(at(ledger.HeaderAcceptedAt))),
		cli.Brief(at(ledger.HeaderFinishedAt).Sub(called)))
}

package webhook

import (
	"cmp"
	"strconv"
	"time"
	"unicode/utf8"

	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// mostBody bounds the body of a job's answer in a post, in bytes before JSON escapes them.
const mostBody = jobstory.MostBody

// envelope is the body of a callback's post, in the form that Standard Webhooks recommends.
type envelope struct {
	Type      string    `json:"type"` // job.done, job.dead or test
	Timestamp time.Time `json:"timestamp"`
	Data      any       `json:"data"`
}

// ended is the data of an envelope that reports the end of a job. Its fields have the same names as in results and
// letters.
type ended struct {
	API string `json:"api"`
	Key string `json:"key"`
	Seq uint64 `json:"seq"` // of the result or the letter
	jobstory.End
	Cut      bool             `json:"cut,omitempty"`      // the body was longer
	FoundBy  string           `json:"found_by,omitempty"` // of a result: inquiry
	Redrives int              `json:"redrives"`
	Refusals int              `json:"refusals,omitempty"` // of a letter: how often the job was refused; absent if once
	Answer   *deadview.Answer `json:"answer,omitempty"`   // of a letter: the api's last answer
}

// keptEnd is a stored end in the form in which it is posted.
type keptEnd struct {
	id       string // the same in every try
	key, job string
	stored   time.Time
	post     []byte
}

func endOfResult(r *ledger.Result) *keptEnd {
	e := ended{API: r.API, Key: r.Key, Seq: r.Seq, FoundBy: r.Header.Get(ledger.HeaderFoundBy), Redrives: redrivesIn(r.Header)}
	body, cut := cutBody(r.Body, r.Header.Get(ledger.HeaderBody) == ledger.BodyCut)
	e.End, e.Cut = jobstory.EndOf(&nats.Msg{Header: r.Header, Data: body}), cut
	return &keptEnd{
		id: idOf(r.Header, done, r.Seq), key: r.Key, job: r.Job, stored: r.Stored,
		post: mustMarshal(envelope{"job.done", r.Stored.UTC(), e}),
	}
}

func endOfLetter(k *deadletter.Kept) *keptEnd {
	e := ended{API: k.API, Key: k.Key, Seq: k.Seq, Redrives: k.Redrives, Refusals: k.Refusals, Answer: deadview.AnswerOf(k.Answer)}
	e.End = jobstory.EndOf(k.Notice())
	if !k.Accepted.IsZero() {
		e.AcceptedAt = ledger.Stamp(k.Accepted)
	}
	if k.Call != nil && !k.Call.Started.IsZero() {
		e.CalledAt = ledger.Stamp(k.Call.Started)
	}
	if !k.At.IsZero() {
		e.FinishedAt = ledger.Stamp(k.At)
	}
	return &keptEnd{
		id: idOf(k.Header, dead, k.Seq), key: k.Key, job: k.JobID, stored: k.Stored,
		post: mustMarshal(envelope{"job.dead", k.Stored.UTC(), e}),
	}
}

// redrivesIn returns how often the job of a result was redriven. h has the result's headers.
func redrivesIn(h nats.Header) int {
	n, err := strconv.Atoi(h.Get(ingest.HeaderRedrives))
	if err != nil {
		return 0
	}
	return n
}

// idOf returns the id of an end: the message id of its result or letter, which derives from the job's origin. Other
// software may have written the message without an id. Then idOf makes an id from the sequence.
func idOf(h nats.Header, kind endKind, seq uint64) string {
	return cmp.Or(h.Get(ingest.HeaderMsgID), string(kind)+"."+strconv.FormatUint(seq, 10))
}

// cutBody cuts a body to at most mostBody bytes, and reports whether a part is missing. cut says whether body was
// already cut. A text that is cut stays valid UTF-8.
func cutBody(body []byte, cut bool) ([]byte, bool) {
	if len(body) > mostBody {
		body, cut = body[:mostBody], true
	}
	if !cut || utf8.Valid(body) {
		return body, cut
	}
	for n := 1; n < utf8.UTFMax && n <= len(body); n++ {
		if whole := body[:len(body)-n]; utf8.RuneStart(body[len(body)-n]) && utf8.Valid(whole) {
			return whole, true
		}
	}
	return body, cut
}

package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// MaxBatch bounds the jobs of one batch.
const MaxBatch = 1000

// Batch is several jobs of one api in one message. Its body has the jobs one after the other. Each job is a line, then
// its headers, then its body:
//
//	<bytes of the headers> <bytes of the body> <key>\r\n
//	Nats-Msg-Id: order-7\r\n
//	…the body
//
// Each header is a line that ends with \r\n. The first number counts the bytes of these lines. Each job has an id. The
// header Weir-Batch of the message has the number of jobs.
//
// The key is written as in a subject. The subject is weir.jobs.<api>._ if the lines have keys, and weir.jobs.<api> if
// no job has a key. If all jobs have the same key, the subject is weir.jobs.<api>.<key>, and the lines have no keys: a
// producer then needs only the right to publish jobs of that key. A line without a key has no blank after the second
// number.
//
// The zero value is not usable: call NewBatch.
type Batch struct {
	api   string
	key   string // the key of the first job, as in a subject
	jobs  int
	keyed []int // where in body the keys are, each with the blank before it
	mixed bool  // the jobs have different keys
	body  []byte
}

// NewBatch returns a batch without jobs.
func NewBatch(api string) *Batch { return &Batch{api: api} }

// Add adds a job, which Submission.Message has rendered for the api of the batch. It fails if the batch is full, if the
// job is for another api, if no message can carry a header of the job, or if the job has no headers, and so no id.
func (b *Batch) Add(m *nats.Msg) error {
	if b.jobs == MaxBatch {
		return fmt.Errorf("a batch has at most %d jobs", MaxBatch)
	}
	address, ours := strings.CutPrefix(m.Subject, SubjectPrefix)
	api, key, keyed := strings.Cut(address, ".")
	if !ours || api != b.api {
		return fmt.Errorf("subject %s: the batch has jobs of api %s", clip(m.Subject), clip(b.api))
	}
	size := 0
	for name, values := range m.Header {
		for _, v := range values {
			if name == "" || strings.ContainsAny(name, ": \t\r\n") || strings.ContainsAny(v, "\r\n") {
				return fmt.Errorf("header %s: a message cannot carry it", clip(name))
			}
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	if size == 0 {
		return fmt.Errorf("a job of a batch needs an id (%s)", HeaderMsgID)
	}
	b.body = strconv.AppendInt(b.body, int64(size), 10)
	b.body = strconv.AppendInt(append(b.body, ' '), int64(len(m.Data)), 10)
	if b.jobs == 0 {
		b.key = key
	}
	b.mixed = b.mixed || key != b.key || key == NoToken
	if keyed {
		b.keyed = append(b.keyed, len(b.body))
		b.body = append(append(b.body, ' '), key...)
	}
	b.body = append(b.body, "\r\n"...)
	for name, values := range m.Header {
		for _, v := range values {
			b.body = append(append(append(append(b.body, name...), ": "...), v...), "\r\n"...)
		}
	}
	b.body = append(b.body, m.Data...)
	b.jobs++
	return nil
}

// Jobs returns how many jobs the batch has.
func (b *Batch) Jobs() int { return b.jobs }

// Message renders the batch. Send it as a request; ParseBatch reads the answer. The batch must not be used after that.
func (b *Batch) Message() *nats.Msg {
	subject := SubjectPrefix + b.api
	switch {
	case len(b.keyed) == 0:
	case b.mixed:
		subject += "." + NoToken
	default:
		subject += "." + b.key
		b.dropKeys()
	}
	return &nats.Msg{Subject: subject, Header: nats.Header{HeaderBatch: {strconv.Itoa(b.jobs)}}, Data: b.body}
}

// dropKeys removes the one key of the jobs from their lines.
func (b *Batch) dropKeys() {
	to := b.keyed[0]
	for i, at := range b.keyed {
		end := len(b.body)
		if i+1 < len(b.keyed) {
			end = b.keyed[i+1]
		}
		to += copy(b.body[to:], b.body[at+len(" ")+len(b.key):end])
	}
	b.body = b.body[:to]
}

// SizeInBatch returns how many bytes a job takes at most in a batch.
func SizeInBatch(m *nats.Msg) int {
	size := len(m.Subject) + len(m.Data) + longestLine
	for name, values := range m.Header {
		for _, v := range values {
			size += len(name) + len(v) + len(": \r\n")
		}
	}
	return size
}

// longestLine bounds the two numbers before a job, with the blanks and the line's end.
const longestLine = 32

// BatchEnvelope bounds the headers of a batch's message, in bytes.
const BatchEnvelope = 64

// Answer is weir's answer to one job of a batch.
type Answer struct {
	Receipt Receipt // if Err is nil
	// Err is a *Refusal, or wraps ErrNoAnswer, or is a *ForeignAnswer, or says that the answer cannot be read. Except
	// after a *Refusal it is unknown whether the job is stored: submit the job again under the same id. In the answers
	// of SubmitMany, Err may also say why the job was not sent.
	Err error
	// JSON is the answer as weir sent it. It is nil if Err wraps ErrNoAnswer.
	JSON []byte
}

// batchAnswer is the wire form of the answer to a batch: the answer to each job, or null.
type batchAnswer struct {
	Jobs []json.RawMessage `json:"jobs"`
}

// ParseBatch parses the answer to a batch of so many jobs. It returns the answers in the order of the jobs. If weir
// refused the batch as a whole, the error is a *Refusal, and no job of it was accepted. The answer of a foreign stream
// is a *ForeignAnswer.
func ParseBatch(data []byte, jobs int) ([]Answer, error) {
	var w batchAnswer
	plain := false
	if w.Jobs, plain = cutAnswers(data); !plain {
		if err := json.Unmarshal(data, &w); err != nil {
			return nil, fmt.Errorf("weir's answer cannot be read: %w", err)
		}
	}
	if w.Jobs == nil {
		if _, err := ParseAnswer(data); err != nil {
			return nil, err
		}
	}
	if len(w.Jobs) != jobs {
		return nil, fmt.Errorf("weir's answer cannot be read: it is about %d jobs, the batch had %d", len(w.Jobs), jobs)
	}
	answers := make([]Answer, jobs)
	for i, text := range w.Jobs {
		if string(text) == "null" {
			answers[i].Err = ErrNoAnswer
			continue
		}
		answers[i].JSON = text
		answers[i].Receipt, answers[i].Err = ParseAnswer(text)
	}
	return answers, nil
}

// JoinAnswers renders the answer to a batch from the answers to its jobs. An answer is nil if weir does not know
// whether the job is stored. JoinAnswers writes null for it, and for answers that do not fit into most bytes, so that
// the producer submits those jobs again.
func JoinAnswers(answers [][]byte, most int) []byte {
	const begin, end, unknown = `{"jobs":[`, `]}`, `null`
	size := len(begin) + len(end)
	for _, a := range answers {
		size += max(len(a), len(unknown)) + 1
	}
	b := append(make([]byte, 0, min(size, most)), begin...)
	for i, a := range answers {
		if i > 0 {
			b = append(b, ',')
		}
		left := (len(answers) - i - 1) * (len(unknown) + 1)
		if a == nil || len(b)+len(a)+left+len(end) > most {
			b = append(b, unknown...)
			continue
		}
		b = append(b, a...)
	}
	return append(b, end...)
}

package httpcall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"weir/deadletter"
	"weir/ingest"
)

// Form says how the jobs of a pack are written in the body of its call, or their answers in the body of the answer.
type Form struct {
	Lines bool   // one JSON value a line
	Under string // the JSON pointer of the array; "" if the body is the array
}

// Pack says how an api takes several jobs in one call.
type Pack struct {
	Jobs    int   // most jobs of one call
	Bytes   int64 // most bytes of the call's body, unless one job alone is larger
	Wait    time.Duration
	Request Form
	Answers Form
	// Match is the JSON pointer to the value that a job's body has in common with its answer; "" if the answers are in
	// the order of the jobs.
	Match string
	// Status is the JSON pointer to the status in a job's answer; "" if every job is done when the call succeeded.
	Status string
}

// leastPart is the least number of bytes of an answer's body that are read for each job of a pack. This may be more
// than is kept.
const leastPart = 4 << 10

// Part is what the call of a pack means for one of the pack's jobs.
type Part struct {
	Response Response
	Outcome  Outcome
}

// Item returns a job's body in the form in which it goes into a pack, and the value by which the job's answer is found.
// It fails if no pack can take the job.
func (p *Pack) Item(j *ingest.Job) (item []byte, match string, err error) {
	rule := ingest.Packed{Match: p.Match}
	return rule.Item(j.Body)
}

// Alike reports whether two jobs have the same method, path, query and forwarded headers, so that one call can carry
// both.
func Alike(a, b *ingest.Job) bool {
	return a.Method == b.Method && a.Path == b.Path && a.Query == b.Query && slices.Equal(a.Forward, b.Forward)
}

// Body returns the body of a call that carries these items.
func (p *Pack) Body(items [][]byte) []byte {
	var b bytes.Buffer
	before, between, after := "[", ",", "]"
	switch {
	case p.Request.Lines:
		before, between, after = "", "\n", "\n"
	case p.Request.Under != "":
		for _, name := range ingest.PointerNames(p.Request.Under) {
			quoted, _ := json.Marshal(name) // every string has a JSON form
			before, after = before[:len(before)-1]+"{"+string(quoted)+":[", after+"}"
		}
	}
	b.WriteString(before)
	for i, item := range items {
		if i > 0 {
			b.WriteString(between)
		}
		b.Write(item)
	}
	b.WriteString(after)
	return b.Bytes()
}

// Overhead returns how many bytes a body for n items has in addition to the items.
func (p *Pack) Overhead(n int) int64 { return int64(len(p.Body(make([][]byte, n)))) }

// Parts returns what the call of a pack means for each of the pack's jobs. matches has, for each job, the value by
// which its answer is found. whole is the judgement of the call itself. Parts takes the call's answer apart only if the
// call succeeded.
func (p *Pack) Parts(api *API, r Response, whole Outcome, matches []string) []Part {
	parts := make([]Part, len(matches))
	for i := range parts {
		parts[i] = Part{r, whole}
	}
	if whole.Verdict != Delivered {
		return parts
	}
	answers, err := p.answersTo(matches, r)
	if err != nil {
		for i := range parts {
			parts[i].Outcome = Unknown(deadletter.BilledYes, "status %d, but the answers to the jobs of its pack cannot be told apart: %v", r.Status, err)
		}
		return parts
	}
	for i := range parts {
		parts[i] = p.part(api, r, answers[i])
	}
	return parts
}

// answersTo returns the answer to each job of a pack, nil for none. matches has, for each job, the value by which its
// answer is found. Answers that belong to no job are not kept, however many there are. If two answers have the same
// value, neither counts.
func (p *Pack) answersTo(matches []string, r Response) (answers []json.RawMessage, err error) {
	answers = make([]json.RawMessage, len(matches))
	jobs, twice, n := make(map[string]int, len(matches)), make([]bool, len(matches)), 0
	for i, match := range matches {
		jobs[match] = i
	}
	err = p.each(r, func(answer json.RawMessage) (more bool) {
		i, wanted := n, n < len(matches)
		if n++; p.Match != "" {
			i, wanted = jobs[ingest.Matched(answer, p.Match)]
		}
		if !wanted {
			return p.Match != ""
		}
		if twice[i] = answers[i] != nil || twice[i]; twice[i] {
			answer = nil
		}
		answers[i] = answer
		return true
	})
	switch {
	case err != nil || p.Match != "" || n == len(matches):
		return answers, err
	case n > len(matches):
		return nil, fmt.Errorf("it has more than %d answers to %[1]d jobs", len(matches))
	}
	return nil, fmt.Errorf("it has %d answers to %d jobs", n, len(matches))
}

// part judges one job's answer, nil for none. The pack's idempotency key is of no use for a single job, so part judges
// the answer as if the api were not idempotent.
func (p *Pack) part(api *API, r Response, item json.RawMessage) Part {
	if item == nil {
		return Part{r, Unknown(deadletter.BilledYes, "status %d, but its answer has none to this job of its pack", r.Status)}
	}
	of := r
	of.Body, of.More, of.Units = item, int64(len(item)) > api.MaxResult, nil
	of.Header = of.Header.Clone()
	of.Header.Set("Content-Type", "application/json")
	if p.Status == "" {
		return Part{of, Outcome{Verdict: Delivered, Billed: deadletter.BilledYes}}
	}
	status, ok := numberAt(item, p.Status)
	if !ok || status < 100 || status > 599 {
		return Part{of, Unknown(deadletter.BilledYes, "its answer in the pack has no status at %s", p.Status)}
	}
	of.Status = int(status)
	once := *api
	once.Idempotency, once.Operation = nil, nil
	out := classify(&once, of)
	switch out.Verdict {
	case Pushback:
		out = Outcome{Verdict: Again, Billed: deadletter.NotBilled, Detail: fmt.Sprintf("the api answered this job of the pack with %d", status)}
	case Denied:
		out = rejection(of) // the api let the call itself in
	default:
	}
	return Part{of, out}
}

// each takes the body of a call's answer apart. It calls do with one job's answer after the other, until do returns
// false.
func (p *Pack) each(r Response, do func(answer json.RawMessage) (more bool)) error {
	body := r.Body
	switch {
	case r.More:
		return errors.New("the answer is longer than weir reads: results.max_body for each job, and 4 KiB at least")
	case p.Answers.Lines:
		return eachLine(body, do)
	case p.Answers.Under != "":
		at, err := ingest.Pointed(body, p.Answers.Under)
		if err != nil {
			return errors.New("the answer has nothing at " + p.Answers.Under)
		}
		body, _ = at.(json.RawMessage)
	}
	if !eachOf(body, do) {
		return errors.New("the answer has no array of answers")
	}
	return nil
}

// eachOf calls do with the elements of a JSON array, until do returns false. It reports whether the text is an array.
func eachOf(text []byte, do func(json.RawMessage) bool) bool {
	if !json.Valid(text) {
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	if begin, err := dec.Token(); err != nil || begin != json.Delim('[') {
		return false
	}
	for dec.More() {
		var one json.RawMessage
		if dec.Decode(&one) != nil {
			return false // the text is valid, so this does not happen
		}
		if !do(one) {
			break
		}
	}
	return true
}

func eachLine(text []byte, do func(json.RawMessage) bool) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	for {
		var one json.RawMessage
		switch err := dec.Decode(&one); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return errors.New("the answer is not JSON lines")
		case !do(one):
			return nil
		}
	}
}

// numberAt returns the whole number that a pointer names in a JSON text.
func numberAt(text []byte, pointer string) (int64, bool) {
	v, err := ingest.Pointed(text, pointer)
	number, ok := v.(json.Number)
	if err != nil || !ok {
		return 0, false
	}
	n, err := number.Int64()
	return n, err == nil
}

package reuse

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"slices"
	"strings"
	"time"

	"weir/ingest"

	"github.com/nats-io/nats.go"
)

// Rule says when an api's answers are given again. It is immutable.
type Rule struct {
	For        time.Duration // how old an answer may be
	Parts      Parts         // of a request that are compared
	AcrossKeys bool          // jobs of different keys may ask the same thing
	Bytes      int64         // bounds the memory for answers that are remembered
	Target     string        // names the address of the api: another one gives other answers
}

// Parts are the parts of a request that are compared.
type Parts struct {
	Method, Path, Query, Body bool
	Headers                   []string // names in canonical form, sorted
}

// CompareAlike reports whether two rules, either of which may be nil, give every job the same Sum.
func (r *Rule) CompareAlike(other *Rule) bool {
	if r == nil || other == nil {
		return r == other
	}
	p, o := &r.Parts, &other.Parts
	return r.AcrossKeys == other.AcrossKeys && r.Target == other.Target && p.Method == o.Method && p.Path == o.Path && p.Query == o.Query &&
		p.Body == o.Body && slices.Equal(p.Headers, o.Headers)
}

// Sum stands for all that is compared of a job's request.
type Sum [sha256.Size]byte

// String returns the sum as results carry it.
func (s Sum) String() string { return base64.RawURLEncoding.EncodeToString(s[:]) }

// ParseSum reads what String returned.
func ParseSum(text string) (s Sum, ok bool) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) != len(s) {
		return Sum{}, false
	}
	return Sum(data), true
}

// Of returns the sum of a job's request.
func (r *Rule) Of(j *ingest.Job) (s Sum) {
	h := sha256.New()
	r.write(h, j)
	h.Sum(s[:0])
	return s
}

// write writes all that is compared of a job. Every text stands behind its length and every list behind its number of
// texts, so that two jobs that differ in what is compared never write the same. The names of the parts are written,
// too: rules that compare different parts give different sums.
func (r *Rule) write(to io.Writer, j *ingest.Job) {
	w := writer{to: to}
	w.part("request", "1", r.Target, j.API)
	if !r.AcrossKeys {
		w.part("key", j.Key)
	}
	if r.Parts.Method {
		w.part("method", j.Method)
	}
	if r.Parts.Path {
		w.part("path", j.Path)
	}
	if r.Parts.Query {
		w.part("query", j.Query)
	}
	for _, name := range r.Parts.Headers {
		w.part("header", name)
		w.part("own", valuesOf(j.Header, name)...)
		w.part("forwarded", valuesOf(j.Header, ingest.HeaderForward+name)...)
	}
	if r.Parts.Body {
		w.part("body")
		w.length(len(j.Body))
		_, _ = to.Write(j.Body) // a hash never fails
	}
}

// valuesOf returns the values of a header over all spellings of its name, always in the same order.
func valuesOf(h nats.Header, name string) (values []string) {
	var spelled []string
	for n := range h {
		if len(n) == len(name) && strings.EqualFold(n, name) {
			spelled = append(spelled, n)
		}
	}
	slices.Sort(spelled)
	for _, n := range spelled {
		values = append(values, h[n]...)
	}
	return values
}

// writer writes texts so that they can be told apart.
type writer struct {
	to    io.Writer
	space [binary.MaxVarintLen64]byte
}

func (w *writer) part(name string, values ...string) {
	w.text(name)
	w.length(len(values))
	for _, v := range values {
		w.text(v)
	}
}

func (w *writer) text(s string) {
	w.length(len(s))
	_, _ = io.WriteString(w.to, s)
}

func (w *writer) length(n int) {
	_, _ = w.to.Write(binary.AppendUvarint(w.space[:0], uint64(n))) //nolint:gosec // a length
}

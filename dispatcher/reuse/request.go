package reuse

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"slices"
	"time"

	"weir/bucket"
	"weir/ingest"
)

// Rule says when an api's answers are given again, and what two requests must have in common for that. They must always
// have the same method: the answer to a GET must never stand for a DELETE. A Rule is immutable.
type Rule struct {
	For         time.Duration // how old an answer may be
	Path, Body  bool          // whether they are compared; the path includes the query
	Headers     []string      // the forwarded headers that are compared: names in canonical form, sorted
	AcrossKeys  bool          // jobs of different keys of a tenant may ask the same thing
	TenantUntil string        // ends the tenant's part of a key, as in bucket.Rules; "": all keys belong to one tenant
	Bytes       int64         // bounds the memory for remembered answers
	// Target identifies the configuration on which the api's answers depend. Requests with different targets differ.
	Target string
}

// CompareAlike reports whether two rules give every job the same Sum. Either rule may be nil.
func (r *Rule) CompareAlike(other *Rule) bool {
	if r == nil || other == nil {
		return r == other
	}
	return r.Path == other.Path && r.Body == other.Body && slices.Equal(r.Headers, other.Headers) && r.AcrossKeys == other.AcrossKeys &&
		r.TenantUntil == other.TenantUntil && r.Target == other.Target
}

// Sum is a hash of everything that a Rule compares in a job's request.
type Sum [sha256.Size]byte

// String returns the sum in base64, as results have it.
func (s Sum) String() string { return base64.RawURLEncoding.EncodeToString(s[:]) }

// ParseSum parses a text that String returned. ok is false for any other text.
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

// write writes everything that the rule compares in a job. It writes the length before each text, and the number of
// texts before each list. So two jobs write the same only if everything that is compared is equal. It also writes the
// names of the parts: rules that compare different parts give different sums.
func (r *Rule) write(to io.Writer, j *ingest.Job) {
	w := writer{to: to}
	w.part("request", r.Target, j.API, j.Method)
	if r.AcrossKeys {
		w.part("tenant", r.TenantUntil, bucket.Rules{TenantUntil: r.TenantUntil}.Tenant(j.Key))
	} else {
		w.part("key", j.Key)
	}
	if r.Path {
		w.part("path", j.Path, j.Query)
	}
	for _, name := range r.Headers {
		var values []string
		for _, f := range j.Forward {
			if f.Name == name {
				values = append(values, f.Value)
			}
		}
		w.part("header", name)
		w.part("values", values...)
	}
	if r.Body {
		w.part("body")
		w.length(len(j.Body))
		_, _ = to.Write(j.Body) // a hash never fails
	}
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

package fakeapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ending says how a call ended, as far as the api could tell. It is a closed set.
type Ending string

// The endings. Only Answered, Limited, Replayed, Conflict and Refused sent a whole answer.
const (
	// Running calls have not ended, or the process died before they did.
	Running Ending = ""
	// Answered with the status ordered.
	Answered Ending = "answered"
	// Limited by the vendor's own limit: 429.
	Limited Ending = "limited"
	// Replayed from the saved answer of the same idempotency key.
	Replayed Ending = "replayed"
	// Conflict: the idempotency key is in use by a running call (409) or belongs to another request (422).
	Conflict Ending = "conflict"
	// Refused because the request was wrong or the api could not: 400, 413, 500, 503.
	Refused Ending = "refused"
	// ResetHeader: connection reset before the body was read.
	ResetHeader Ending = "reset-header"
	// ResetBody: connection reset after the body was read, before the answer.
	ResetBody Ending = "reset-body"
	// ResetAnswer: connection reset in the middle of the answer's body.
	ResetAnswer Ending = "reset-answer"
	// Closed without an answer.
	Closed Ending = "closed"
	// Hung until the client gave up.
	Hung Ending = "hung"
	// Gone: the client gave up while the work was being done.
	Gone Ending = "gone"
	// Cut: the client left before its request's body had been read.
	Cut Ending = "cut"
)

// Field is one recorded header.
type Field struct{ Name, Value string }

// Arrival is one request that reached the api, and what became of it.
type Arrival struct {
	// Number counts the arrivals of a ledger from 1, across restarts.
	Number int64
	// At is when the request's header had been read, in nanoseconds on the monotonic clock since the ledger began.
	At int64
	// End is when the answer was settled, just before it was sent; of an answer sent bit by bit and of a hang, when the last
	// byte was sent or the client gave up. Same clock as At; 0 while running.
	End int64

	Method string
	// Path and Query are as sent, still escaped. (Text that is not UTF-8, here and below, has its odd bytes as %XX.)
	Path, Query string
	// Fields are the recorded headers, sorted by name; several values of one name are joined by ", ".
	Fields []Field
	// Key is the request's key, empty if it has none.
	Key string
	// Cost is the units the call takes, at least 1.
	Cost int64

	// BodySize is the length of the request's body and BodyHash its SHA-256 in hex: of what was read, if the call was Cut or
	// Refused. Zero and empty before the body has been read.
	BodySize int64
	BodyHash string
	// Body is the beginning of the request's body, at most Options.KeepBody bytes.
	Body []byte

	// Ending says how the call ended.
	Ending Ending
	// Status is the status answered; 0 if none was sent.
	Status int
	// Billed calls cost Charge, in millionths of the currency.
	Billed bool
	Charge int64
	// Used is what a billed call to a language model used.
	Used Tokens
	// Seen is set when the idempotency key had been seen before.
	Seen bool
}

// Header returns the recorded header of that name, empty if there is none.
func (a *Arrival) Header(name string) string {
	for i := range a.Fields {
		if strings.EqualFold(a.Fields[i].Name, name) {
			return a.Fields[i].Value
		}
	}
	return ""
}

// Took is the time from arrival to end; 0 while running.
func (a *Arrival) Took() time.Duration {
	if a.End == 0 {
		return 0
	}
	return time.Duration(a.End - a.At)
}

// arrivalOf describes a request whose header has been read at the given time. It does not touch the body.
func (a *API) arrivalOf(r *http.Request, at int64) *Arrival {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") { // absolute form, as sent to a proxy
		path, query = r.URL.EscapedPath(), r.URL.RawQuery
	}
	return &Arrival{
		At: at, Method: r.Method, Path: legible(path), Query: legible(query),
		Fields: a.fields(r.Header),
		Key:    a.opts.Key.of(path, r.Header),
		Cost:   costOf(r.Header.Get(a.opts.CostHeader)),
	}
}

// fields selects the headers worth recording. Credentials (Authorization, Cookie) are recorded only when asked for by name.
func (a *API) fields(header http.Header) []Field {
	fields := make([]Field, 0, 4)
	for name, values := range header {
		if len(name) > 2 && name[:2] == "X-" || name == "User-Agent" || slices.Contains(a.recorded, name) {
			fields = append(fields, Field{name, legible(strings.Join(values, ", "))})
		}
	}
	slices.SortFunc(fields, byName)
	return fields
}

func byName(x, y Field) int { return strings.Compare(x.Name, y.Name) }

// byTime orders arrivals by time, those of the same nanosecond by number.
func byTime(x, y Arrival) int {
	return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.Number, y.Number))
}

// costOf reads a cost header; whatever is not a whole number above zero counts as 1.
func costOf(value string) int64 {
	if value == "" {
		return 1
	}
	cost, err := strconv.ParseInt(value, 10, 64)
	if err != nil || cost < 1 {
		return 1
	}
	return cost
}

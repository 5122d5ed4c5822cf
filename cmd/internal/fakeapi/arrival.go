package fakeapi

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ending says how a call ended, as far as the api can tell. It is a closed set.
type Ending string

// The endings. Only Answered, Limited, Replayed, Conflict and Refused sent a whole answer.
const (
	// Running: the call has not ended, or the process died before it did.
	Running Ending = ""
	// Answered: the ordered status was sent.
	Answered Ending = "answered"
	// Limited: the vendor limit or a use limit refused the call with 429.
	Limited Ending = "limited"
	// Replayed: the saved answer of the same idempotency key was sent.
	Replayed Ending = "replayed"
	// Conflict: a running call has the idempotency key (409), or the key belongs to another request (422).
	Conflict Ending = "conflict"
	// Refused: the request was wrong, or the api could not carry it out (400, 413, 500, 503).
	Refused Ending = "refused"
	// ResetHeader: the connection was reset before the body was read.
	ResetHeader Ending = "reset-header"
	// ResetBody: the connection was reset after the body was read and before the answer.
	ResetBody Ending = "reset-body"
	// ResetAnswer: the connection was reset in the middle of the answer's body.
	ResetAnswer Ending = "reset-answer"
	// Closed: the connection was closed in order, without an answer.
	Closed Ending = "closed"
	// Hung: the api said nothing until the client gave up.
	Hung Ending = "hung"
	// Gone: the client gave up while the api did the work.
	Gone Ending = "gone"
	// Cut: the client left before the api had read the request's body.
	Cut Ending = "cut"
)

// Field is one recorded header.
type Field struct{ Name, Value string }

// Arrival is one request that reached the api, and how the call ended.
type Arrival struct {
	// Number counts the arrivals of a ledger from 1, also across restarts.
	Number int64
	// At is when the api had read the request's header, in nanoseconds on the monotonic clock since the ledger began.
	At int64
	// End is when the answer was settled, just before it was sent. For an answer that is sent bit by bit, and for a
	// hang, it is when the last byte was sent or the client gave up. It has the same clock as At, and is 0 while the
	// call runs.
	End int64

	Method string
	// Path and Query are as sent, still escaped. Here and below, bytes that are not UTF-8 are written as %XX.
	Path, Query string
	// Fields are the recorded headers, sorted by name. Several values of one name are joined by ", ".
	Fields []Field
	// Key is the request's key, or "".
	Key string
	// Cost is how many units the call takes, at least 1.
	Cost int64

	// BodySize is the length of the request's body, and BodyHash its SHA-256 in hex. If the call was Cut or Refused,
	// they describe the part that was read. They are zero until the api has read the body.
	BodySize int64
	BodyHash string
	// Body is the beginning of the request's body, at most Options.KeepBody bytes.
	Body []byte

	// Ending says how the call ended.
	Ending Ending
	// Status is the answered status, or 0 if none was sent.
	Status int
	// Billed says whether the call is charged for. Charge is its price in millionths of the currency.
	Billed bool
	Charge int64
	// Used has the tokens of a billed call to a language model.
	Used Tokens
	// Seen says that the api had seen the idempotency key before.
	Seen bool
}

// Header returns a recorded header, or "" if there is none with this name.
func (a *Arrival) Header(name string) string {
	for i := range a.Fields {
		if strings.EqualFold(a.Fields[i].Name, name) {
			return a.Fields[i].Value
		}
	}
	return ""
}

// Took returns the time from arrival to end, or 0 while the call runs.
func (a *Arrival) Took() time.Duration {
	if a.End == 0 {
		return 0
	}
	return time.Duration(a.End - a.At)
}

// arrivalOf describes a request whose header was read at at. It does not read the body.
func (a *API) arrivalOf(r *http.Request, at int64) *Arrival {
	path, query, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") { // absolute form, as clients send it to a proxy
		path, query = r.URL.EscapedPath(), r.URL.RawQuery
	}
	return &Arrival{
		At: at, Method: r.Method, Path: legible(path), Query: legible(query),
		Fields: a.fields(r.Header),
		Key:    a.opts.Key.of(path, r.Header),
		Cost:   costOf(r.Header.Get(a.opts.CostHeader)),
	}
}

// fields returns the headers that are recorded: User-Agent, those that begin with X-, and those that the options name.
// Credentials (Authorization, Cookie) are recorded only if the options name them.
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

// byTime orders arrivals by time, and arrivals of the same nanosecond by number.
func byTime(x, y Arrival) int {
	return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.Number, y.Number))
}

// costOf parses a cost header. Anything other than a whole number above zero counts as 1.
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

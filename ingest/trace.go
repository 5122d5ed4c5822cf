package ingest

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// Trace is a job's W3C trace context (https://www.w3.org/TR/trace-context/) and baggage, as its producer sent it. The zero value is none.
type Trace struct {
	Parent  string // the traceparent; always a valid one, or ""
	State   string // the tracestate; "" without a Parent
	Baggage string // of https://www.w3.org/TR/baggage/, also without a Parent
}

// maxBaggage bounds a baggage that is handed on, in bytes, as W3C does.
const maxBaggage = 8192

// maxTraceState bounds a tracestate that is handed on, in bytes; W3C asks for no more. A longer one stays in the job's own header.
const maxTraceState = 512

// The fields of a traceparent: 00-<32 hex digits>-<16>-<2>. A later version may have more behind them.
const (
	traceIDAt    = len("00-")
	spanIDAt     = traceIDAt + 32 + len("-")
	traceFlagsAt = spanIDAt + 16 + len("-")
	traceSize    = traceFlagsAt + 2
)

// TraceOf reads the trace context of a job's own header, whatever the case of its letters: OpenTelemetry's propagators write
// Traceparent into Go's headers.
func TraceOf(h nats.Header) Trace {
	var t Trace
	for name, values := range h {
		t.take(name, values)
	}
	return t.checked()
}

// take notes a header if it is one of the three.
func (t *Trace) take(name string, values []string) {
	switch {
	case len(name) != len(HeaderTrace) && len(name) != len(HeaderTraceState) && len(name) != len(HeaderBaggage), len(values) == 0:
	case strings.EqualFold(name, HeaderBaggage):
		t.Baggage = strings.Join(values, ",")
	case strings.EqualFold(name, HeaderTrace):
		t.Parent = values[0]
	case strings.EqualFold(name, HeaderTraceState):
		t.State = strings.Join(values, ",")
	}
}

// checked is t if it says something, else none.
func (t Trace) checked() Trace {
	if len(t.Baggage) > maxBaggage || checkHeaderValue(t.Baggage) != nil {
		t.Baggage = ""
	}
	switch {
	case !validTraceParent(t.Parent):
		return Trace{Baggage: t.Baggage}
	case len(t.State) > maxTraceState || checkHeaderValue(t.State) != nil:
		t.State = ""
	}
	return t
}

func validTraceParent(s string) bool {
	switch {
	case len(s) < traceSize || s[traceIDAt-1] != '-' || s[spanIDAt-1] != '-' || s[traceFlagsAt-1] != '-':
		return false
	case !isHex(s[:2]) || s[:2] == "ff" || !isHex(s[traceFlagsAt:traceSize]):
		return false
	case s[:2] == "00" && len(s) != traceSize, len(s) > traceSize && s[traceSize] != '-', len(s) > maxTraceState:
		return false
	}
	id, span := s[traceIDAt:spanIDAt-1], s[spanIDAt:traceFlagsAt-1]
	return isHex(id) && isHex(span) && strings.Trim(id, "0") != "" && strings.Trim(span, "0") != "" && checkHeaderValue(s) == nil
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// ID is the trace's id, 32 hex digits; "" for none.
func (t Trace) ID() string {
	if t.Parent == "" {
		return ""
	}
	return t.Parent[traceIDAt : spanIDAt-1]
}

// Sampled reports whether the producer says that the trace is recorded.
func (t Trace) Sampled() bool {
	return t.Parent != "" && strings.IndexByte("13579bdf", t.Parent[traceSize-1]) >= 0
}

// Outgoing is the job as its api is to get it with trace context t: where its rule forwards the job's own, and the job has not named
// another one for the api by Weir-Header-Traceparent.
func (j *Job) Outgoing(rule *Rule, t Trace) *Job {
	if t.Parent == "" || !forwards(rule, HeaderTrace) {
		return j
	}
	for name := range j.Header {
		if strings.EqualFold(name, HeaderForward+HeaderTrace) {
			return j
		}
	}
	out := *j
	out.Forward = slices.DeleteFunc(slices.Clone(j.Forward), func(f HeaderField) bool { return strings.EqualFold(f.Name, HeaderTrace) })
	out.Forward = append(out.Forward, HeaderField{Name: http.CanonicalHeaderKey(HeaderTrace), Value: t.Parent})
	return &out
}

// AddTo sets its headers in h, each where there is one.
func (t Trace) AddTo(h nats.Header) {
	if t.Parent != "" {
		h[HeaderTrace] = []string{t.Parent}
	}
	if t.State != "" {
		h[HeaderTraceState] = []string{t.State}
	}
	if t.Baggage != "" {
		h[HeaderBaggage] = []string{t.Baggage}
	}
}

// Log is log with the trace's id in each line, where there is one.
func (t Trace) Log(log *slog.Logger) *slog.Logger {
	if t.Parent == "" {
		return log
	}
	return log.With("trace_id", t.ID())
}

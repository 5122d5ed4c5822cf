package ingest

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
)

// Trace is the W3C trace context (https://www.w3.org/TR/trace-context/) and the baggage that a job's producer sent. The
// zero value has neither.
type Trace struct {
	Parent  string // valid traceparent, or ""
	State   string // the tracestate; "" without a Parent
	Baggage string // see https://www.w3.org/TR/baggage/; kept without a Parent too
}

// maxBaggage bounds a baggage that is passed on, in bytes, as W3C does.
const maxBaggage = 8192

// maxTraceState bounds a tracestate that is passed on, in bytes. W3C requires no more. A longer one is not passed on,
// but stays in the job's own header.
const maxTraceState = 512

// Offsets in a traceparent: 00-<32 hex digits>-<16>-<2>. A later version of the format may append more.
const (
	traceIDAt    = len("00-")
	spanIDAt     = traceIDAt + 32 + len("-")
	traceFlagsAt = spanIDAt + 16 + len("-")
	traceSize    = traceFlagsAt + 2
)

// TraceOf reads the trace context from a job's own header. It ignores the case of names: OpenTelemetry's propagators
// write Traceparent into Go's headers.
func TraceOf(h nats.Header) Trace {
	var t Trace
	for name, values := range h {
		t.take(name, values)
	}
	return t.checked()
}

// take stores the value of a header if it is traceparent, tracestate or baggage.
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

// checked returns t without its invalid parts.
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

// ID returns the trace's id, 32 hex digits, or "" if there is none.
func (t Trace) ID() string {
	if t.Parent == "" {
		return ""
	}
	return t.Parent[traceIDAt : spanIDAt-1]
}

// Sampled reports whether the producer set the sampled flag: its trace is recorded.
func (t Trace) Sampled() bool {
	return t.Parent != "" && strings.IndexByte("13579bdf", t.Parent[traceSize-1]) >= 0
}

// Outgoing returns the job with the trace context t for its api. It replaces the job's traceparent only if the rule
// forwards that header and the job has no Weir-Header-Traceparent.
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

// AddTo sets the headers of t in h. It sets no empty ones.
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

// Log returns log with the trace's id in each line, if there is one.
func (t Trace) Log(log *slog.Logger) *slog.Logger {
	if t.Parent == "" {
		return log
	}
	return log.With("trace_id", t.ID())
}

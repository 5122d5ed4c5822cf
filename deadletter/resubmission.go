package deadletter

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// Deadline returns the deadline of the letter's job, or zero if it has none that can be read. A duration counts from
// when the job was accepted or, if the letter does not say when, from the letter's own time.
func (l *Letter) Deadline() time.Time { return l.timeIn(ingest.HeaderDeadline, ingest.ParseDeadline) }

// NotBefore returns the time before which the letter's job must not be called. A duration counts from the same time as
// in Deadline.
func (l *Letter) NotBefore() time.Time {
	return l.timeIn(ingest.HeaderNotBefore, ingest.ParseNotBefore)
}

// timeIn returns the time in one of the job's headers, or zero if there is none that can be read.
func (l *Letter) timeIn(header string, parse func(value string, from time.Time) (time.Time, error)) time.Time {
	from := l.Accepted
	if from.IsZero() {
		from = l.At
	}
	if values := ingest.HeaderValues(l.Header, header); len(values) == 1 {
		if at, err := parse(values[0], from); err == nil {
			return at
		}
	}
	return time.Time{}
}

// valueOf returns the first value of a job's header, in any case of its name, or "" if it has none.
func valueOf(h nats.Header, name string) string {
	if values := ingest.HeaderValues(h, name); len(values) > 0 {
		return values[0]
	}
	return ""
}

// resubmission returns the message that publishes the letter's job again on the subject of redrives: its own headers
// and body, under the job's id.
//
// The message id is new, because the queue knows the old one. A job that no queue has taken keeps its message id: if
// its producer or another redrive submits the job too, before or after, the queue answers that it knows the job. The
// deadline and the time in Weir-Not-Before become absolute times. With DropDeadline the deadline is left out. Headers
// that were renamed from Nats- stay renamed, because what they asked of JetStream was refused or has been done. The
// headers of the bill are copied, so that the next letter still has them. now must be the time at which the letter was
// judged: if the api still knew the idempotency key then, the key must go along. Otherwise the job could be called
// again long after the api has forgotten the key.
func (l *Kept) resubmission(terms Terms, deadline DeadlinePolicy, now time.Time) *nats.Msg {
	subject := ingest.Subjects(ingest.RedrivePrefix).Of(l.API)
	if terms.keyInSubject() {
		subject = ingest.Subjects(ingest.RedrivePrefix).Of(l.API, l.Key)
	}
	h := make(nats.Header, len(l.Header))
	for name, values := range l.Header {
		lower := strings.ToLower(name)
		switch {
		case l.ours(name), strings.HasPrefix(lower, "nats-"), strings.EqualFold(name, ingest.HeaderJobNats+"Msg-Id"):
		case lower == "weir-deadline" && deadline == DropDeadline:
		case lower == "weir-deadline" && !l.Deadline().IsZero():
			h[name] = []string{l.Deadline().UTC().Format(time.RFC3339Nano)}
		case lower == "weir-not-before" && !l.NotBefore().IsZero():
			h[name] = []string{l.NotBefore().UTC().Format(time.RFC3339Nano)}
		default:
			h[name] = values
		}
	}
	n := l.Redrives + 1
	h[ingest.HeaderMsgID] = []string{ingest.RedriveID(l.JobID, n)}
	if l.neverTaken() {
		h[ingest.HeaderMsgID] = []string{cmp.Or(valueOf(l.Header, ingest.HeaderJobNats+"Msg-Id"), l.JobID)}
	}
	h[ingest.HeaderJobID] = []string{l.JobID}
	h[ingest.HeaderRedrives] = []string{strconv.Itoa(n)}
	h[HeaderFrom] = []string{strconv.FormatUint(l.firstLetter(), 10)}
	if l.Billed == BilledYes || l.Billed == BilledUnknown {
		h[HeaderBilled] = []string{string(l.Billed)}
	}
	if edited := l.Header.Get(HeaderEdited); edited != "" {
		h[HeaderEdited] = []string{edited}
	}
	if l.Keyed != "" && SameKey(l.Keyed, terms.Keyed) && !KeyForgotten(l.Keyed, terms.KnowsKeys, now.Add(KeyMargin)) {
		h[HeaderKeyed] = []string{l.Keyed} // a repeated call is safe only while the api knows this key
	}
	return &nats.Msg{Subject: subject, Header: h, Data: l.Body}
}

// setPriority sets the priority of a job's message.
func setPriority(h nats.Header, p ingest.Priority) {
	for name := range h {
		if strings.EqualFold(name, ingest.HeaderPriority) {
			delete(h, name)
		}
	}
	if p != ingest.Normal {
		h[ingest.HeaderPriority] = []string{p.String()}
	}
}

// sameRequest reports whether two letters have the same request to the api. Another job may have got the same id after
// weir forgot the first.
func (l *Letter) sameRequest(other *Letter) bool {
	return bytes.Equal(l.Body, other.Body) && maps.EqualFunc(l.requestHeaders(), other.requestHeaders(), slices.Equal)
}

// requestHeaders returns the job's headers that are part of the request to the api, by their names in lower case. It
// leaves out the headers of traces, which differ with each submission.
func (l *Letter) requestHeaders() map[string][]string {
	parts := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		lower := strings.ToLower(name)
		forwarded, forwards := strings.CutPrefix(lower, "weir-header-")
		switch {
		case forwarded == "content-type":
			parts[forwarded] = l.Header[name]
		case forwarded == ingest.HeaderTrace, forwarded == ingest.HeaderTraceState:
		case forwards, lower == "weir-method", lower == "weir-path", lower == "weir-query":
			parts[lower] = append(parts[lower], l.Header[name]...)
		}
	}
	return parts
}

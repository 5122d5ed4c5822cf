package deadletter

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"weir/ingest"
)

// Deadline is until when the letter's job was to be called; zero: it has no deadline that can be read. A duration counts
// from when the job came in or, where a letter does not say that, from when it died.
func (l *Letter) Deadline() time.Time { return l.timeIn(ingest.HeaderDeadline, ingest.ParseDeadline) }

// NotBefore is the time before which the letter's job was not to be called, in the same way.
func (l *Letter) NotBefore() time.Time {
	return l.timeIn(ingest.HeaderNotBefore, ingest.ParseNotBefore)
}

// timeIn is the time that one of the job's headers names; zero where there is none that can be read.
func (l *Letter) timeIn(header string, parse func(value string, from time.Time) (time.Time, error)) time.Time {
	for name, values := range l.Header {
		if strings.EqualFold(name, header) && len(values) == 1 {
			from := l.Accepted
			if from.IsZero() {
				from = l.At
			}
			if at, err := parse(values[0], from); err == nil {
				return at
			}
		}
	}
	return time.Time{}
}

// resubmission is the letter's job as it is published once more, on the subject of redrives: its own headers and its body, under the job's old id. The message id is one of its own, since the queue knows the job's; a job that
// no queue has taken keeps the one it came with, so that whoever hands it in once more, its producer or a redrive, before or
// after, is told that it is known. What a job says of its deadline, and of when not to call it, is
// written as the time it meant; a deadline is left out with dropped. The job's own headers that begin with Nats- stay renamed: what they asked JetStream for was
// refused, or has been done. A bill goes along, so that the next letter still knows it.
func (l *Letter) resubmission(terms Terms, deadline DeadlinePolicy) *nats.Msg {
	subject := ingest.Subjects(ingest.RedrivePrefix).Of(l.API)
	if terms.KeyInSubject {
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
		h[ingest.HeaderMsgID] = []string{cmp.Or(l.Header.Get(ingest.HeaderJobNats+"Msg-Id"), l.JobID)}
	}
	h[ingest.HeaderJobID] = []string{l.JobID}
	h[ingest.HeaderRedrives] = []string{strconv.Itoa(n)}
	if l.Billed == BilledYes || l.Billed == BilledUnknown {
		h[HeaderBilled] = []string{string(l.Billed)}
	}
	if edited := l.Header.Get(HeaderEdited); edited != "" {
		h[HeaderEdited] = []string{edited}
	}
	if l.Keyed != "" && l.Keyed == terms.Keyed {
		h[HeaderKeyed] = []string{l.Keyed} // it is safe to call only as long as the api's calls are told apart so
	}
	return &nats.Msg{Subject: subject, Header: h, Data: l.Body}
}

// sameRequest reports whether two letters are of one request to the api: the same id may have been given to another job
// when the first was long forgotten.
func (l *Letter) sameRequest(other *Letter) bool {
	for _, name := range []string{ingest.HeaderMethod, ingest.HeaderPath, ingest.HeaderQuery} {
		if l.Header.Get(name) != other.Header.Get(name) {
			return false
		}
	}
	return bytes.Equal(l.Body, other.Body)
}

package client

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// HeaderField is one header for the api.
type HeaderField struct{ Name, Value string }

// SubjectPrefix begins the subjects on which jobs are submitted. The api and the key follow.
const SubjectPrefix = "weir.jobs."

// Submission is a job to submit. API is required. Key is required unless the api takes the key from a header or the
// body.
type Submission struct {
	API string
	Key string // at most MaxKeyBytes bytes; empty: the key is where the configuration says
	// ID names the job. weir takes two submissions with one ID for the same job. If empty, every message gets a new id.
	ID                  string
	Method, Path, Query string        // below the api's url; empty: the api's first method, no path, no query
	Header              []HeaderField // for the api; the api's forward_headers says which are allowed
	Body                []byte
	Deadline            time.Time     // no call after it; zero: none
	Within              time.Duration // like Deadline, but a duration from the job's arrival; zero: none
	NotBefore           time.Time     // no call before it; zero: at once
	Delay               time.Duration // like NotBefore, but a duration from the job's arrival; zero: none
	Priority            Priority      // zero: Normal
	Cost                int64         // units for weighted limits; zero: 1
	ReplyTo             string        // the producer's own subject for the result or the dead letter's notice
	// Retries says that the producer keeps a throttled job and submits it again, so that the refusal leaves no dead
	// letter.
	Retries bool
	// JobHeader holds other headers of the job itself, for example the one with its key, or a trace context.
	JobHeader nats.Header
}

// Named returns the submission with an ID. It makes a new one if there is none. Sending the result twice makes one job.
func (s Submission) Named() Submission {
	if s.ID == "" {
		s.ID = uuid.Must(uuid.NewV7()).String()
	}
	return s
}

// Message renders the submission for any NATS connection. The message always has an id, so that sending it again after
// a lost answer makes no second job.
func (s Submission) Message() (*nats.Msg, error) {
	subject := SubjectPrefix + s.API
	switch {
	case s.API == "" || Token(s.API) != s.API:
		return nil, fmt.Errorf("%q cannot be the name of an api", clip(s.API))
	case s.Key != "":
		if err := CheckKey(s.Key); err != nil {
			return nil, err
		}
		subject += "." + Token(s.Key)
	}
	id := s.Named().ID
	h := nats.Header{}
	for name, values := range s.JobHeader {
		h[name] = values
	}
	for _, f := range s.Header {
		name := HeaderForward + f.Name
		if strings.EqualFold(f.Name, headerContentType) {
			name = headerContentType
		}
		h.Add(name, f.Value)
	}
	for name, value := range map[string]string{
		HeaderMsgID: id, HeaderMethod: s.Method, HeaderPath: s.Path, HeaderQuery: s.Query, HeaderReplyTo: s.ReplyTo,
	} {
		if value != "" {
			h.Set(name, value)
		}
	}
	if !s.Deadline.IsZero() {
		h.Set(HeaderDeadline, s.Deadline.UTC().Format(time.RFC3339Nano))
	} else if s.Within != 0 {
		h.Set(HeaderDeadline, s.Within.String())
	}
	if !s.NotBefore.IsZero() {
		h.Set(HeaderNotBefore, s.NotBefore.UTC().Format(time.RFC3339Nano))
	} else if s.Delay != 0 {
		h.Set(HeaderNotBefore, s.Delay.String())
	}
	if s.Retries {
		h.Set(HeaderThrottled, Retry)
	}
	if s.Priority != Normal {
		h.Set(HeaderPriority, s.Priority.String())
	}
	if s.Cost != 0 {
		h.Set(HeaderCost, strconv.FormatInt(s.Cost, 10))
	}
	for name, values := range h {
		for _, v := range values {
			if strings.ContainsAny(name+v, "\r\n") || strings.TrimSpace(v) != v {
				return nil, fmt.Errorf("header %s: NATS cannot carry line breaks, nor blanks at the ends", name)
			}
		}
	}
	return &nats.Msg{Subject: subject, Header: h, Data: s.Body}, nil
}

// clip shortens a text from outside so that it can be quoted.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
)

// Submission is a job as a producer hands it in. API is required, and Key unless the api takes the key from a header or
// from the body.
type Submission struct {
	API string
	Key string // any text of at most MaxKeyBytes bytes; empty: it stands where the api's configuration says
	// ID names the job: sent again under the same id it is the same job. Empty: one is made for every message.
	ID                  string
	Method, Path, Query string        // below the api's url; empty: the api's first method, no path, no query
	Header              []HeaderField // for the api; what it may be is the api's forward_headers
	Body                []byte
	Deadline            time.Time     // not called after it; zero: none
	Within              time.Duration // the same, counted from the job's arrival; zero: none
	NotBefore           time.Time     // not called before it; zero: at once
	Delay               time.Duration // the same, counted from the job's arrival; zero: none
	Cost                int64         // units for weighted limits; zero: 1
	ReplyTo             string        // a subject of the producer's own, which gets the result or the dead letter's notice
	// JobHeader holds any other header of the job itself, such as the one that holds its key, or a trace context.
	JobHeader nats.Header
}

// Message renders the submission for any NATS connection. It always has an id, so that sending the same message again,
// because its answer was lost, makes no second job.
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
	id := s.ID
	if id == "" {
		id = uuid.Must(uuid.NewV7()).String()
	}
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

// Client hands jobs to weir. It is safe for concurrent use.
type Client struct{ nc *nats.Conn }

// NewClient makes a client of a connection, which stays the caller's.
func NewClient(nc *nats.Conn) *Client { return &Client{nc: nc} }

// Submit hands in one job and waits until it is stored or refused, or ctx ends; give ctx a deadline.
//
// A refusal is a *Refusal. A *ForeignAnswer says that a stream answered in weir's place. With it, and with any other error, nobody knows whether the job was taken, except that with
// nats.ErrNoResponders it was not: submit it again under the same ID.
func (c *Client) Submit(ctx context.Context, s Submission) (Receipt, error) {
	msg, err := s.Message()
	if err != nil {
		return Receipt{}, err
	}
	answer, err := c.nc.RequestMsgWithContext(ctx, msg)
	if errors.Is(err, nats.ErrNoResponders) {
		return Receipt{}, fmt.Errorf("no weir takes jobs there: %w", err)
	} else if err != nil {
		return Receipt{}, fmt.Errorf("submit to %s: %w", s.API, err)
	}
	return ParseAnswer(answer.Data)
}

// ParseAnswer reads what the intake answered; a refusal is a *Refusal. What a stream answered in its place is a *ForeignAnswer.
func ParseAnswer(data []byte) (Receipt, error) {
	var receipt struct {
		Receipt
		ETA time.Time `json:"eta"`
	}
	var refusal struct {
		Error *json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(data, &refusal); err != nil {
		return Receipt{}, fmt.Errorf("weir's answer cannot be read: %w", err)
	}
	if refusal.Error != nil {
		var w refusalAnswer
		if err := json.Unmarshal(data, &w); err != nil {
			return Receipt{}, fmt.Errorf("weir's answer cannot be read: %w", err)
		}
		if !ourCode(w.Error.ErrCode) {
			return Receipt{}, &ForeignAnswer{Stream: w.Stream, Refused: clip(w.Error.Description)}
		}
		return Receipt{}, &Refusal{
			Code: Code(w.Error.ErrCode), Description: w.Error.Description, Job: w.Job, LetterSeq: w.DeadLetterSeq,
			RetryAfter: time.Duration(w.RetryAfterMS) * time.Millisecond,
		}
	}
	if err := json.Unmarshal(data, &receipt); err != nil {
		return Receipt{}, fmt.Errorf("weir's answer cannot be read: %w", err)
	}
	if receipt.Stream != "" && (receipt.Job == "" || !strings.HasPrefix(receipt.Stream, queuePrefix)) {
		return Receipt{}, &ForeignAnswer{Stream: receipt.Stream}
	}
	if receipt.Seq == 0 && !receipt.Duplicate || receipt.Job == "" {
		return Receipt{}, errors.New("what answered is not weir: its answer is no receipt")
	}
	receipt.Receipt.ETA = receipt.ETA
	return receipt.Receipt, nil
}

package httpcall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/ingest"
)

// Operation says how an api's long operations are polled. If the api answers a call with a status in Accepted, it has
// begun an operation.
type Operation struct {
	Accepted []int
	Path     string // of the polls, below the api's url; with {job} and values of the answer that accepted the call
	Hosts    []string
	Every    time.Duration // time between two polls of one operation
	Rate     bucket.Rate   // bounds all polls of one replica
	For      time.Duration // time from the call until weir stops polling
	Answers  Answers
	Result   string // a pointer to the result in the final answer; "": the whole body
	HoldSlot bool   // an operation counts as a call in flight
	Cancel   *Cancellation
}

// Cancellation says how the api is told to cancel an operation.
type Cancellation struct {
	Method string
	Path   string // as in Operation; "": the address of the polls
}

// What a poll's answer means, beside StillUnknown.
const (
	OperationDone    Finding = "done"
	OperationFailed  Finding = "failed"
	OperationRunning Finding = "running"
)

// MaxAddress bounds the address of an operation, in bytes.
const MaxAddress = 2 << 10

// maxAccepted is the least number of bytes that are read of an answer that accepts a call. Its body may hold the
// operation's address.
const maxAccepted = 64 << 10

// accepts reports whether an answer with this status has begun an operation.
func (a *API) accepts(status int) bool {
	return a.Operation != nil && slices.Contains(a.Operation.Accepted, status)
}

// Accept completes the outcome of a call that the api has accepted: it finds out where the operation is polled. If the
// answer does not tell, or names a place that weir must not ask, the job becomes a letter, because the api has begun
// the operation. But if the answer broke off and calls carry keys, the job is called again.
func (a *API) Accept(out Outcome, r Response, job *ingest.Job) Outcome {
	o := a.Operation
	op := &queue.Operation{Started: r.Started.UTC(), Target: a.Target(), Holds: o.HoldSlot}
	var err error
	if op.Address, err = a.address(o.Path, r, job); err == nil && o.Cancel != nil {
		if op.Cancel = op.Address; o.Cancel.Path != "" {
			op.Cancel, err = a.address(o.Cancel.Path, r, job)
		}
	}
	if err != nil && r.Cut && a.Idempotency != nil { // like any other answer that broke off
		out.Verdict, out.Detail = Again, fmt.Sprintf("status %d, but %v", r.Status, r.Err)
		return out
	}
	if err != nil {
		out = Unknown(deadletter.BilledYes, "the api accepted it with %d, but its operation cannot be polled: %v", r.Status, err)
		if !errors.Is(err, errOtherHost) {
			return out
		}
		op.Cancel, op.Holds = "", false // an operator may allow the host, and ask about the letter
	}
	out.Operation = op
	return out
}

// address returns the whole url that a path of the configuration stands for. If the path is a single placeholder for a
// value of the answer, the value may be an absolute or a relative url, as in the header Location. In every other path
// each value is escaped.
func (a *API) address(path string, r Response, job *ingest.Job) (string, error) {
	of := func(name string) (string, error) { return accepted(name, r, job) }
	text := a.URL.Scheme + "://" + a.URL.Host + strings.TrimSuffix(a.URL.EscapedPath(), "/")
	if name, whole := onlyPlaceholder(path); whole && name != "job" {
		value, err := of(name)
		if err != nil {
			return "", err
		}
		called, err := url.Parse(text + job.Path)
		if err != nil {
			return "", errors.New("its call's url cannot be read")
		}
		u, err := called.Parse(value)
		if err != nil {
			return "", fmt.Errorf("{%s} is no url", name)
		}
		text = u.String()
	} else {
		below, err := fill(path, of)
		if err != nil {
			return "", err
		}
		text += below
	}
	u, err := a.mayAsk(text)
	if u == nil {
		return "", err
	}
	u.Fragment = ""
	return u.String(), err
}

// errOtherHost says that an operation is on a host that the configuration does not name.
var errOtherHost = errors.New("its address is on a host that is not the api's host; operation.poll.hosts can allow it")

// onlyPlaceholder reports whether the whole path is one placeholder, and returns the placeholder's name.
func onlyPlaceholder(path string) (name string, only bool) {
	name, open := strings.CutPrefix(path, "{")
	name, closed := strings.CutSuffix(name, "}")
	return name, open && closed && !strings.ContainsAny(name, "{}")
}

// accepted returns the value that replaces a placeholder: the job's id, or a value of the answer that accepted the job.
func accepted(name string, r Response, job *ingest.Job) (string, error) {
	if name == "job" {
		return job.ID, nil
	}
	if header, ok := strings.CutPrefix(name, "answer-header:"); ok {
		value := strings.TrimSpace(r.Header.Get(header))
		if value == "" {
			return "", fmt.Errorf("its answer has no header %s", header)
		}
		return value, nil
	}
	pointer := strings.TrimPrefix(name, "answer:")
	if r.Cut || r.More {
		return "", errors.New("its answer broke off, or is too long")
	}
	found, err := ingest.Pointed(r.Body, pointer)
	if err != nil {
		return "", fmt.Errorf("its answer has nothing at %s", pointer)
	}
	value := scalar(found)
	if value == "" {
		return "", fmt.Errorf("its answer has no text and no number at %s", pointer)
	}
	return value, nil
}

// mayAsk parses an operation's address, and returns an error unless the address leads to the api's own host or to a
// configured host. The error does not quote the address. If only the host is wrong, the error is errOtherHost.
func (a *API) mayAsk(address string) (*url.URL, error) {
	if len(address) > MaxAddress {
		return nil, fmt.Errorf("its address is longer than %d bytes", MaxAddress)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("its address is no url of http or https")
	case u.User != nil:
		return nil, errors.New("its address has a user or a password")
	case a.isOwn(u):
		return u, nil
	case a.Operation != nil && slices.Contains(a.Operation.Hosts, placeOf(u)):
		return u, nil
	}
	return u, errOtherHost
}

func (a *API) isOwn(u *url.URL) bool { return placeOf(a.URL) == placeOf(u) }

// placeOf returns a url's scheme and host, with the port if it is not the scheme's usual one.
func placeOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	switch u.Scheme {
	case "https":
		host = strings.TrimSuffix(host, ":443")
	case "http":
		host = strings.TrimSuffix(host, ":80")
	}
	return u.Scheme + "://" + host
}

// Operations asks an api about its operations. It has connections of its own, so that no poll uses a call's connection.
// It is safe for concurrent use.
type Operations struct {
	api   *API
	agent string

	mu      sync.Mutex // guards what follows
	closed  bool
	clients map[string]*Client // by scheme and host
}

// NewOperations returns Operations that have no connection yet.
func NewOperations(api *API, agent string) *Operations {
	return &Operations{api: api, agent: agent, clients: map[string]*Client{}}
}

// idlePolls bounds the idle connections for polls of one host.
const idlePolls = 4

// errElsewhere says that the configuration does not let weir ask about an operation at the operation's address.
var errElsewhere = errors.New("it cannot be asked there")

// client returns the client of a host. A host that is not the api's own never gets a header with a secret, nor weir's
// certificate.
func (o *Operations) client(u *url.URL) *Client {
	o.mu.Lock()
	defer o.mu.Unlock()
	place := placeOf(u)
	if c := o.clients[place]; c != nil {
		return c
	}
	api := *o.api
	api.URL = &url.URL{Scheme: u.Scheme, Host: u.Host}
	api.Idempotency, api.Operation = nil, nil
	api.MaxResult, api.Timeout = max(api.MaxResult, maxInquired), min(api.Timeout, longestInquiry)
	if !o.api.isOwn(u) {
		headers := o.api.Headers
		api.Headers = func() ([]ingest.HeaderField, error) {
			all, err := headers()
			return slices.DeleteFunc(all, func(f ingest.HeaderField) bool { return slices.Contains(o.api.Credentials, f.Name) }), err
		}
		api.Trust = api.Trust.anonymous()
	}
	c := NewClient(&api, o.agent, idlePolls, nil)
	if !o.closed { // else Ask closes it
		o.clients[place] = c
	}
	return c
}

// Ask sends a request without a body to an operation's address. It blocks for at most the api's timeout, or half a
// minute if that is shorter. It sends nothing if the configuration does not allow the address.
func (o *Operations) Ask(ctx context.Context, method, address string, h Hooks) Response {
	failed := func(err error) Response {
		now := time.Now()
		return Response{Err: err, Started: now, Ended: now}
	}
	u, err := o.api.mayAsk(address)
	if err != nil {
		return failed(fmt.Errorf("%w: %w", errElsewhere, err))
	}
	c := o.client(u)
	if o.isClosed() {
		defer c.Conns.Close()
	}
	if err := c.Conns.Acquire(ctx); err != nil {
		return failed(ForLetters(err))
	}
	defer c.Conns.Release()
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	return c.Call(ctx, &ingest.Job{Method: method, Path: path, Query: u.RawQuery}, h)
}

func (o *Operations) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}

// Close closes the connections when requests under way have ended. It does nothing for nil.
func (o *Operations) Close() {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	for place, c := range o.clients {
		c.Conns.Close()
		delete(o.clients, place)
	}
}

// Poll asks whether an operation has ended, and returns what the answer means, with a description in words.
func (o *Operations) Poll(ctx context.Context, address string, h Hooks) (r Response, means Finding, detail string) {
	r = o.Ask(ctx, http.MethodGet, address, h)
	means, detail = o.api.Operation.Answers.Read(r)
	return r, means, detail
}

// ResultOf returns a final answer whose body is replaced by the operation's result, as the configuration says. If the
// body has no value at that pointer, ResultOf returns the answer unchanged.
func (o *Operation) ResultOf(r Response) Response {
	if o.Result == "" || r.More || r.Cut {
		return r
	}
	found, err := ingest.Pointed(r.Body, o.Result)
	if err != nil {
		return r
	}
	body, whole := found.(json.RawMessage)
	if !whole {
		if body, err = json.Marshal(found); err != nil {
			return r
		}
	}
	r.Body, r.Header = body, r.Header.Clone()
	r.Header.Set("Content-Type", "application/json")
	return r
}

// IsRefusedAccess reports whether an answer is about weir's own access to the api.
func (r *Response) IsRefusedAccess() bool { return denies(r.Status) }

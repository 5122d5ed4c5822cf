package httpcall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"weir/deadletter"
	"weir/ingest"
)

// Response is the result of one call.
type Response struct {
	Sent    bool // at least one byte may have left
	Barred  bool // there was a connection, but the call was no longer allowed: nothing was sent
	Status  int  // 0: no answer
	Header  http.Header
	Body    []byte           // the beginning of the answer's body
	More    bool             // the answer's body was longer than Body
	Units   map[string]int64 // numbers in the body, by JSON pointer, that settle or count the call
	Cut     bool             // the answer broke off before its end
	Err     error            // why there is no answer, or why it is cut
	Started time.Time        // when the first byte was about to be sent; if none was, when Call began
	Headed  time.Time        // when the answer's headers had come; zero without an answer
	Ended   time.Time
	Wire    Wire // the connection
}

// Number returns the whole number at a place of the answer. It returns false if it cannot read one.
func (r *Response) Number(at ingest.Source) (int64, bool) {
	if r.Status == 0 {
		return 0, false
	}
	for place := range at.Places() {
		if n, ok := r.numberAt(place); ok {
			return min(n, ingest.MostUnits), true
		}
	}
	return 0, false
}

func (r *Response) numberAt(at ingest.Place) (int64, bool) {
	if at.Header == "" {
		n, ok := r.Units[at.Pointer]
		return n, ok
	}
	n, err := strconv.ParseInt(strings.TrimSpace(r.Header.Get(at.Header)), 10, 64)
	return n, (err == nil || errors.Is(err, strconv.ErrRange)) && n >= 0
}

// Wire describes the connection that a call was made on.
type Wire struct {
	Kept  bool      // the connection had carried a call before
	Bytes int64     // bytes of the call that were handed to the connection
	Wrote time.Time // when the last byte of the request was handed to the connection; zero: never
}

// Hooks are functions by which a call reports its progress and asks for the right to begin. Each may be nil, and none
// may block.
type Hooks struct {
	// MayWrite is called when only the first byte is left to be sent. It may be called more than once, and from another
	// goroutine. If it returns false, nothing is sent.
	MayWrite func() bool
	// Begins is called when the first byte is about to be handed to the network, and Left when the first bytes have
	// been handed to it. Both are called from another goroutine. If Begins returns false, nothing is sent. If nothing
	// has left and another connection is tried, both are called again.
	Begins func() bool
	Left   func()
	Most   int64 // bytes of the answer's body to keep, if more than the api's MaxResult
}

// Client makes the calls of one api. It is safe for concurrent use.
type Client struct {
	API   *API
	Agent string
	Conns *Connections
}

// NewClient returns a Client for an api. If former is not nil and its connections suit the api, the Client takes them
// over. Otherwise it gets new ones, of which at most maxIdle are idle.
func NewClient(api *API, agent string, maxIdle int, former *Client) *Client {
	idle := idleUnrepeatable
	if api.Idempotency != nil {
		idle = idleIdempotent
	}
	c := &Client{API: api, Agent: agent}
	if former != nil && former.API.URL.Scheme == api.URL.Scheme && former.API.URL.Host == api.URL.Host &&
		(former.API.Idempotency == nil) == (api.Idempotency == nil) && former.API.Trust.Name == api.Trust.Name {
		c.Conns = former.Conns
	} else {
		c.Conns = NewConnections(api.URL, api.Trust, idle, maxIdle)
	}
	return c
}

var (
	errTimeout  = errors.New("the api did not answer in time")
	errIdle     = fmt.Errorf("%w: no byte of the answer came within idle_timeout", errTimeout)
	errSwitched = errors.New("the api switched to another protocol unasked")
	errNotHTTP  = errors.New("the answer is not HTTP")
	errNoStatus = errors.New("the answer has a status that HTTP does not have")
	errLongHead = fmt.Errorf("the answer's headers have no end within %d KiB and %d lines", maxHeadBytes>>10, 1<<10)

	errNoRequest = errors.New("the request could not be made")
	errNoHeaders = errors.New("the configured headers cannot be read")
	errBarred    = errors.New("the call was no longer allowed when its first byte could be sent")
)

// Call makes one HTTP request and reads its answer. It blocks for at most the api's timeout. If the process was stopped
// when the timeout ended, Call blocks for up to one second more. It never follows a redirect and never sends twice.
func (c *Client) Call(ctx context.Context, j *ingest.Job, h Hooks) Response {
	ctx, stop := withTimeout(ctx, c.API.Timeout)
	defer stop(nil)
	w := wire{mayWrite: h.MayWrite, begins: h.Begins, left: h.Left, stop: stop}
	defer w.done()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { w.got(ctx, info) }, WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				w.wrote.Store(new(time.Now()))
			}
		},
	})
	r := Response{Started: time.Now()}
	req, err := c.request(ctx, j)
	if err != nil {
		r.Err, r.Ended = fmt.Errorf("%w: %w", errNoRequest, err), time.Now()
		return r
	}
	answer, err := c.Conns.transport.RoundTrip(req)
	switch {
	case err != nil && w.conn != nil && w.conn.turns.endless():
		err = errLongHead
	case err != nil && w.kept && isLeftOver(err):
		c.Conns.distrust()
		err = errUnasked
	case err != nil:
	case answer.StatusCode == http.StatusSwitchingProtocols:
		// The connection belongs to Call now, and nothing bounds reading from it.
		err = errors.Join(errSwitched, answer.Body.Close())
	case answer.StatusCode < 200:
		err = errors.Join(errNoStatus, answer.Body.Close())
	default:
		w.headed()
	}
	r.Sent, r.Barred, r.Wire = w.sent(), w.barred.Load(), w.state()
	if at := w.began.Load(); at != nil {
		r.Started = *at
	}
	if refused := w.refused(); err != nil && refused != nil {
		r.Sent, r.Err, r.Ended = false, refused, time.Now() // the server closed the connection without reading the call
		return r
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(context.Cause(ctx), errTimeout) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errTimeout
		}
		r.Err, r.Ended = ForLetters(err), time.Now()
		return r
	}
	r.Sent, r.Status, r.Header, r.Headed = true, answer.StatusCode, answer.Header, time.Now()
	most := max(h.Most, c.API.MaxResult)
	if r.Status >= 300 {
		most = max(most, deadletter.MaxAnswer) // a letter keeps that much
	} else if c.API.accepts(r.Status) {
		most = max(most, maxAccepted)
	}
	body := answer.Body
	if c.API.IdleTimeout > 0 {
		body = newIdleBody(body, c.API.IdleTimeout, stop)
	}
	read, told := readBody(body, formOf(answer.StatusCode, answer.Header), most, c.API.settlePointers())
	if cause := context.Cause(ctx); read.err != nil && errors.Is(cause, errTimeout) {
		read.err = fmt.Errorf("the answer broke off: %w", cause)
	}
	r.Body, r.More, r.Units, r.Err = read.kept, read.more, told, read.err
	r.Cut = r.Err != nil
	r.Ended = time.Now()
	return r
}

// wire is the connection that a call is made on. If a connection breaks that net/http has used before, net/http may
// take another connection and send the request again. weir prevents that: once a byte has left, every other connection
// is shut before net/http can write to it.
type wire struct {
	conn     *countedConn
	before   int64
	mayWrite func() bool // nil: always
	begins   func() bool // nil: always
	left     func()      // nil: no report
	stop     func(error) // ends the call
	barred   atomic.Bool
	kept     bool // the connection had carried a call before
	began    atomic.Pointer[time.Time]
	wrote    atomic.Pointer[time.Time]
}

// state describes the connection of a call that has ended.
func (w *wire) state() Wire {
	if w.conn == nil {
		return Wire{}
	}
	told := Wire{Kept: w.kept, Bytes: w.conn.written.Load() - w.before}
	if at := w.wrote.Load(); at != nil {
		told.Wrote = *at
	}
	return told
}

// begin reports whether the call may write its first byte to the connection. The wait for a quiet connection may be
// long, so begin checks the right to call before that wait, and again after it. If the right was lost during the wait,
// begin ends the call, which would lack the right on every other connection, too.
func (w *wire) begin(c *countedConn) bool {
	switch {
	case !w.may() || w.begins != nil && !w.begins():
	case !c.turns.ask(w):
		c.shut.Store(true)
		return false
	case w.may():
		w.began.Store(new(time.Now()))
		return true
	}
	c.shut.Store(true)
	w.barred.Store(true)
	w.stop(errBarred)
	return false
}

func (w *wire) may() bool { return w.mayWrite == nil || w.mayWrite() }

// done releases the connection for other calls.
func (w *wire) done() {
	if w.conn != nil {
		w.conn.call.CompareAndSwap(w, nil)
		w.conn.turns.end(w)
	}
}

// headed notes on the connection that the answer's head has been read.
func (w *wire) headed() {
	if w.conn != nil {
		w.conn.turns.headed()
	}
}

func (w *wire) got(ctx context.Context, info httptrace.GotConnInfo) {
	next, ok := info.Conn.(*countedConn)
	if !ok {
		panic("httpcall: a connection that was not dialled by its connections")
	}
	if w.sent() {
		next.shut.Store(true)
		return
	}
	w.conn, w.before, w.kept = next, next.written.Load(), next.written.Load() > 0
	next.call.Store(w)
	next.turns.take(ctx, w)
}

// sent reports whether any byte of the call was written.
func (w *wire) sent() bool { return w.conn != nil && w.conn.written.Load() != w.before }

// refused returns why the server rejected a TLS handshake that this side considered done, nil if the server did not
// reject it.
func (w *wire) refused() error {
	if w.conn == nil {
		return nil
	}
	if err := w.conn.refused.Load(); err != nil {
		return fmt.Errorf("the api does not accept weir's certificate (tls.cert_file): %w", ForLetters(*err))
	}
	return nil
}

// request builds the HTTP request. Its url is the api's url with the job's path and query below it. Its headers are
// those that the job may set, then the configured ones.
func (c *Client) request(ctx context.Context, j *ingest.Job) (*http.Request, error) {
	base := c.API.URL
	target := base.EscapedPath()
	if j.Path != "" {
		target = strings.TrimSuffix(target, "/") + j.Path
	}
	if target == "" {
		target = "/"
	}
	if target[0] != '/' || strings.HasPrefix(target, "//") || strings.ContainsAny(target, " ?#") {
		return nil, errors.New("the path does not stay below the api's url")
	}
	req, err := http.NewRequestWithContext(ctx, j.Method, base.Scheme+"://"+base.Host, bytes.NewReader(j.Body))
	if err != nil {
		return nil, ForLetters(err)
	}
	req.URL.Opaque, req.URL.RawQuery = target, j.Query // exactly as the job has it
	req.GetBody = nil                                  // with it the transport could send again by itself
	req.Close = !c.Conns.trusts()
	req.Header.Set("User-Agent", c.Agent)
	for _, f := range j.Forward {
		req.Header.Add(f.Name, f.Value)
	}
	headers, err := c.API.Headers()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoHeaders, err)
	}
	for _, f := range headers {
		req.Header.Del(f.Name)
	}
	for _, f := range headers {
		req.Header.Add(f.Name, f.Value)
	}
	c.setIdempotencyKey(req, j)
	return req, nil
}

func (c *Client) setIdempotencyKey(req *http.Request, j *ingest.Job) {
	if c.API.Idempotency == nil {
		return
	}
	name, value := c.API.Idempotency.Header, j.ID
	if c.API.Idempotency.Quoted {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	req.Header.Set(name, value)
}

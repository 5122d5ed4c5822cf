package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"weir/ingest"
)

// response is what one call came to.
type response struct {
	sent    bool // at least one byte may have left
	status  int  // 0: no answer
	header  http.Header
	body    []byte           // at most the api's MaxResult
	more    bool             // the answer's was longer
	told    map[string]int64 // units by JSON pointer, where limits are settled by the body
	cut     bool             // the answer broke off before its end
	err     error            // why there is no answer, or why it is cut
	started time.Time
	ended   time.Time
}

// caller makes the calls of one api.
type caller struct {
	api   *API
	agent string
	conns *connections
}

var (
	errTimeout  = errors.New("the api did not answer in time")
	errSwitched = errors.New("the api switched to another protocol unasked")
	errNotHTTP  = errors.New("the answer is not HTTP")

	errNoRequest = errors.New("the request could not be made")
)

// call makes one HTTP request and reads its answer. It blocks for at most the api's timeout. It never follows a
// redirect and never sends twice.
//
// wrote is called when the request has been handed to the network, from another goroutine; it must not block.
func (c *caller) call(ctx context.Context, j *ingest.Job, wrote func()) response {
	ctx, cancel := context.WithTimeoutCause(ctx, c.api.Timeout, errTimeout)
	defer cancel()
	var w wire
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: w.got, WroteRequest: func(httptrace.WroteRequestInfo) { wrote() },
	})
	r := response{started: time.Now()}
	req, err := c.request(ctx, j)
	if err != nil {
		r.err, r.ended = fmt.Errorf("%w: %w", errNoRequest, err), time.Now()
		return r
	}
	answer, err := c.conns.transport.RoundTrip(req)
	if err == nil && answer.StatusCode < 200 {
		// The connection is ours now, and nothing bounds the reading from it.
		err = errors.Join(errSwitched, answer.Body.Close())
	}
	r.sent = w.sent()
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errTimeout
		}
		r.err, r.ended = telling(err), time.Now()
		return r
	}
	r.sent, r.status, r.header = true, answer.StatusCode, answer.Header
	read, told := readBody(answer.Body, c.api.MaxResult, c.api.settlePointers())
	r.body, r.more, r.told, r.err = read.kept, read.more, told, read.err
	r.cut = r.err != nil
	r.ended = time.Now()
	return r
}

// wire is the connection a call is made on. net/http takes another one and sends again, on its own, when a connection
// it had used before breaks and it thinks that the request may be repeated. It may not: once a byte has left, every
// other connection is shut before it can write to it.
type wire struct {
	conn   *countedConn
	before int64
}

func (w *wire) got(info httptrace.GotConnInfo) {
	next, ok := info.Conn.(*countedConn)
	if !ok {
		panic("dispatcher: a connection that was not dialled by its connections")
	}
	if w.sent() {
		next.shut.Store(true)
		return
	}
	w.conn, w.before = next, next.written.Load()
}

// sent reports whether anything was written.
func (w *wire) sent() bool { return w.conn != nil && w.conn.written.Load() != w.before }

// request builds the call: the api's url with the job's path and query below it, what the job may say, and then what
// the configuration says.
func (c *caller) request(ctx context.Context, j *ingest.Job) (*http.Request, error) {
	base := c.api.URL
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
		return nil, telling(err)
	}
	req.URL.Opaque, req.URL.RawQuery = target, j.Query // to the letter, as the job has it
	req.GetBody = nil                                  // with it the transport would send again on its own
	req.Header.Set("User-Agent", c.agent)
	for _, f := range j.Forward {
		req.Header.Add(f.Name, f.Value)
	}
	headers, err := c.api.Headers()
	if err != nil {
		return nil, fmt.Errorf("configured headers: %w", err)
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

func (c *caller) setIdempotencyKey(req *http.Request, j *ingest.Job) {
	if c.api.Idempotency == nil {
		return
	}
	name, value := c.api.Idempotency.Header, j.ID
	if c.api.Idempotency.Quoted {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	req.Header.Set(name, value)
}

package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"weir/ingest"
)

// response is what one call came to.
type response struct {
	sent    bool // at least one byte may have left
	status  int  // 0: no answer
	header  http.Header
	body    []byte // at most the api's MaxResult
	cut     bool   // the answer broke off before its end
	err     error  // why there is no answer, or why it is cut
	started time.Time
	ended   time.Time
}

// caller makes the calls of one api.
type caller struct {
	api   *API
	agent string
	conns *connections
}

var errTimeout = errors.New("the api did not answer in time")

// call makes one HTTP request and reads its answer. It blocks for at most the api's timeout. It never follows a
// redirect and never sends twice.
func (c *caller) call(ctx context.Context, j *ingest.Job) response {
	ctx, cancel := context.WithTimeoutCause(ctx, c.api.Timeout, errTimeout)
	defer cancel()
	var conn *countedConn
	var before int64
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if conn = counted(info.Conn); conn != nil {
			before = conn.written.Load()
		}
	}})
	r := response{started: time.Now()}
	req, err := c.request(ctx, j)
	if err != nil {
		r.err, r.ended = err, time.Now()
		return r
	}
	answer, err := c.conns.transport.RoundTrip(req)
	r.sent = conn != nil && conn.written.Load() != before
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errTimeout
		}
		r.err, r.ended = withoutURL(err), time.Now()
		return r
	}
	r.sent, r.status, r.header = true, answer.StatusCode, answer.Header
	r.body, r.err = readBody(answer.Body, c.api.MaxResult)
	r.cut = r.err != nil
	r.ended = time.Now()
	return r
}

// request builds the call: the api's url with the job's path and query below it, what the job may say, and then what
// the configuration says.
func (c *caller) request(ctx context.Context, j *ingest.Job) (*http.Request, error) {
	base := c.api.URL
	target := base.Scheme + "://" + base.Host + strings.TrimSuffix(base.EscapedPath(), "/") + j.Path
	if j.Query != "" {
		target += "?" + j.Query
	}
	u, err := url.Parse(target)
	if err != nil || u.Host != base.Host || u.User != nil {
		return nil, errors.New("the path does not stay below the api's url")
	}
	body, length := requestBody(j)
	req, err := http.NewRequestWithContext(ctx, j.Method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("build the request: %w", withoutURL(err))
	}
	req.ContentLength = length
	req.GetBody = nil // with it the transport would send again on its own
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
	req.Header.Set("User-Agent", c.agent)
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
	req.Header.Del(name)
	if req.Body == nil || req.Body == http.NoBody {
		// net/http resends a request without a body by itself when it finds "Idempotency-Key" in its header; a name
		// that is not in canonical form it does not find, and HTTP does not mind.
		name = strings.ToLower(name)
	}
	req.Header[name] = []string{value}
}

// requestBody keeps net/http from resending: it does so for GET and the like without a body, but not where there is a
// reader. It finds this reader empty, and sends none.
func requestBody(j *ingest.Job) (body io.Reader, length int64) {
	if len(j.Body) > 0 {
		return io.NopCloser(bytes.NewReader(j.Body)), int64(len(j.Body))
	}
	switch j.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return io.NopCloser(bytes.NewReader(nil)), 0
	}
	return http.NoBody, 0
}

// maxDrain is how much of an answer beyond what is kept is read so that the connection can be used again.
const maxDrain = 64 << 10

func readBody(body io.ReadCloser, most int64) ([]byte, error) {
	defer func() { _ = body.Close() }() // what was read was read
	kept, err := io.ReadAll(io.LimitReader(body, most))
	if err != nil {
		return kept, fmt.Errorf("the answer broke off: %w", withoutURL(err))
	}
	if int64(len(kept)) == most {
		_, _ = io.CopyN(io.Discard, body, maxDrain) // a longer answer costs its connection
	}
	return kept, nil
}

// withoutURL takes the url out of an error: it may hold what is nobody's business.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// client posts spans to the receiver. It implements otlptrace.Client.
type client struct {
	settings *settings
	http     *http.Client
	agent    string
	closing  context.Context // all requests end when it ends
	close    context.CancelFunc
	refused  func(spans int) // gets the number of spans that the receiver rejected
}

// The client retries a failed request after a pause. The pause doubles up to mostPause, until the time for the batch is
// over (OTEL_BSP_EXPORT_TIMEOUT, 30 s by default). Spans that end meanwhile wait; if too many wait, further spans are
// dropped.
const (
	firstPause = time.Second
	mostPause  = 10 * time.Second
	mostAnswer = 64 << 10 // the most bytes of an answer that are read
)

func newClient(s *settings, agent string, refused func(spans int)) *client {
	c := &client{settings: s, agent: agent, refused: refused, http: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: s.tls, MaxIdleConnsPerHost: 2, IdleConnTimeout: 90 * time.Second,
			ForceAttemptHTTP2: true, MaxResponseHeaderBytes: mostAnswer,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // a redirect would send the headers to another host
		Timeout:       s.timeout,
	}}
	c.closing, c.close = context.WithCancel(context.Background())
	return c
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.close()
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces blocks until the receiver has accepted the spans or refused them for good, or until ctx ends.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.closing, cancel)()
	// TracesData is encoded like the request of the OTLP service.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("spans that protobuf cannot carry: %w", err)
	}
	if c.settings.gzip {
		if body, err = zipped(body); err != nil {
			return err
		}
	}
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		wait, err := c.post(ctx, body)
		if err == nil || wait < 0 {
			return err
		}
		select {
		case <-time.After(max(wait, pause)):
		case <-ctx.Done():
			return err
		}
	}
}

// post makes one request. If it fails, wait is how long to wait before a retry; a negative wait means no retry.
func (c *client) post(ctx context.Context, body []byte) (wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.settings.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return -1, c.plain(err)
	}
	req.Header = c.settings.header.Clone()
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", c.agent)
	if c.settings.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return 0, c.plain(err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode == http.StatusSwitchingProtocols { // the body is a raw connection: no timeout would end a read
		return -1, fmt.Errorf("%s answers %d", c.settings.endpoint.Host, res.StatusCode)
	}
	answer, err := io.ReadAll(io.LimitReader(res.Body, mostAnswer))
	switch {
	case res.StatusCode/100 == 2:
		if n := rejectedSpans(answer); err == nil && n > 0 {
			c.refused(n)
		}
		return 0, nil
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusBadGateway,
		res.StatusCode == http.StatusServiceUnavailable, res.StatusCode == http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // a date is ignored
		wait = time.Duration(min(max(seconds, 0), 60)) * time.Second
	default:
		wait = -1
	}
	return wait, fmt.Errorf("%s answers %d", c.settings.endpoint.Host, res.StatusCode)
}

// plain returns an error without the receiver's address, which may contain a token.
func (c *client) plain(err error) error {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return fmt.Errorf("%s: %w", c.settings.endpoint.Host, err)
}

func zipped(body []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(body); err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return b.Bytes(), nil
}

// rejectedSpans returns the number of rejected spans in an answer. In an ExportTraceServiceResponse that is the field
// rejected_spans (1) of partial_success (1). rejectedSpans does not use the message's Go package, because that links
// gRPC.
func rejectedSpans(answer []byte) int {
	partial, _ := field(answer, 1)
	_, n := field(partial, 1)
	return int(min(n, 1<<20))
}

// field returns the first field with that number in a message: either its bytes or its integer.
func field(message []byte, number protowire.Number) (data []byte, value uint64) {
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return nil, 0
		}
		message = message[size:]
		if n == number && kind == protowire.BytesType {
			data, _ = protowire.ConsumeBytes(message)
			return data, 0
		}
		if n == number && kind == protowire.VarintType {
			value, _ = protowire.ConsumeVarint(message)
			return nil, value
		}
		if size = protowire.ConsumeFieldValue(n, kind, message); size < 0 {
			return nil, 0
		}
		message = message[size:]
	}
	return nil, 0
}

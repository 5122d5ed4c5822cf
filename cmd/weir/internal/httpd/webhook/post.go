package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/config"
)

// Bounds of one post.
const (
	postTimeout = 15 * time.Second
	mostAnswer  = 64 << 10 // bytes of an answer that weir reads, so that it can use the connection again
	mostWait    = time.Hour
	mostIdle    = 32 // idle connections that stay open for each host
)

// newClient returns a client for posts. most bounds the connections to one host. 0 means no bound, so that a receiver
// that hangs does not block another receiver on the same host.
func newClient(most int) *http.Client {
	return &http.Client{
		Timeout:       postTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:           http.ProxyFromEnvironment,
			MaxConnsPerHost: most, MaxIdleConnsPerHost: mostIdle, MaxIdleConns: 2 * mostIdle, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: postTimeout, ResponseHeaderTimeout: postTimeout, MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// failure says why a post failed. Its text contains neither the address nor the answer.
type failure struct {
	why        string
	status     int           // 0: there was no answer
	retryAfter time.Duration // the time in Retry-After; 0: there is none
}

// Error implements error.
func (f *failure) Error() string { return f.why }

// refuses reports whether the answer rejects the message. Other answers concern the receiver, or are no 4xx.
func (f *failure) refuses() bool {
	switch f.status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusGone, http.StatusTooEarly,
		http.StatusTooManyRequests:
		return false
	}
	return f.status >= 400 && f.status < 500
}

// post sends a message once. It signs the message if the receiver has a secret. It returns nil if the receiver accepted
// the message.
func post(ctx context.Context, client *http.Client, to *config.Receiver, m message) *failure {
	target, err := to.Target()
	if err != nil {
		return &failure{why: err.Error()}
	}
	key, err := to.Key()
	if err != nil {
		return &failure{why: err.Error()}
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(m.body))
	if err != nil {
		return &failure{why: "the receiver's url cannot be asked"}
	}
	now := time.Now()
	q.Header.Set("Content-Type", m.kind)
	q.Header.Set("User-Agent", "weir")
	if key != nil {
		q.Header.Set("webhook-id", m.id)
		q.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
		q.Header.Set("webhook-signature", signature(key, m.id, now, m.body))
	}
	res, err := client.Do(q)
	if err != nil {
		return &failure{why: "no answer: " + plain(err)}
	}
	defer func() { _ = res.Body.Close() }()
	// After a 101 the body is a connection: a read may block, and the client's timeout does not end it.
	if res.StatusCode != http.StatusSwitchingProtocols {
		_, _ = io.CopyN(io.Discard, res.Body, mostAnswer) // only the status counts
	}
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	why := "answered " + strconv.Itoa(res.StatusCode)
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		why += ", a redirect, which weir does not follow"
	}
	return &failure{why: why, status: res.StatusCode, retryAfter: retryAfter(res.Header.Get("Retry-After"), now)}
}

// plain says why there was no answer. It leaves out what the error quotes: urls, hosts, addresses, and parts of an
// answer.
func plain(err error) string {
	var (
		name   *net.DNSError
		call   *os.SyscallError
		cert   *tls.CertificateVerificationError
		record tls.RecordHeaderError
		late   net.Error
	)
	switch {
	case errors.As(err, &late) && late.Timeout():
		return "it took too long"
	case errors.As(err, &name):
		return "the receiver's host name cannot be resolved"
	case errors.As(err, &cert):
		return "the receiver's certificate is not to be trusted"
	case errors.As(err, &record), strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return "the receiver does not speak TLS"
	case errors.As(err, &call):
		return call.Error() // such as "connect: connection refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the receiver closed the connection"
	case errors.Is(err, context.Canceled):
		return "weir stops"
	}
	return "the answer cannot be read"
}

// retryAfter returns the time in a Retry-After header, at most mostWait. It returns 0 if there is no such time.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return min(max(0, time.Duration(min(seconds, int(mostWait/time.Second)))*time.Second), mostWait)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(0, at.Sub(now)), mostWait)
}

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/internal/httpd/console"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/nats-io/nats.go"
)

// TestNoConnectionIsUnavailable checks that a request gets 503 with Retry-After while NATS cannot be reached or refuses
// weir's credentials.
func TestNoConnectionIsUnavailable(t *testing.T) {
	for _, err := range []error{nats.ErrReconnectBufExceeded, nats.ErrDisconnected, nats.ErrConnectionClosed} {
		p := problemOf(fmt.Errorf("read the ledger: %w", err))
		if p.Status != http.StatusServiceUnavailable || p.RetryAfter != retryAfter || strings.Contains(p.Detail, "buffer") {
			t.Errorf("%v is answered %+v", err, p)
		}
	}
}

// TestOutlookThatTakesTooLong checks that an outlook whose time is over while it reads gets 409 as while it computes, and
// not 503: to try again is of no use.
func TestOutlookThatTakesTooLong(t *testing.T) {
	a := askedAPI(t, natstest.JetStream(t))
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	_, err := a.whatIf.outlook(ctx, &request{asked: time.Now(), given: url.Values{"since": {"1h"}}})
	if p := problemOf(err); p.Status != http.StatusConflict || !strings.Contains(p.Detail, "weir plan --since") {
		t.Errorf("an outlook that takes too long is answered %+v", p)
	}
}

// TestTopicNamesTheStatus checks that the table of the topic http has the status of an error that belongs to no class.
func TestTopicNamesTheStatus(t *testing.T) {
	topic, ok := help.Lookup("http")
	if !ok {
		t.Fatal("there is no topic http")
	}
	for _, err := range []error{errors.New("unknown"), context.DeadlineExceeded, badRequest("no"), admin.ErrLostRace} {
		if status := problemOf(err).Status; !regexp.MustCompile(fmt.Sprintf(`(?m)^\| [^|]*\b%d\b[^|]* \|`, status)).MatchString(topic.Text()) {
			t.Errorf("the topic http does not name the status %d of %v", status, err)
		}
	}
}

// TestCancelledRequestsAreAnswered checks that a request whose context was cancelled gets an error status: net/http also
// cancels it when its read deadline passes, and would answer 200 for a handler that writes nothing.
func TestCancelledRequestsAreAnswered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := route{method: http.MethodGet, serve: func(ctx context.Context, _ *request) (any, error) { return nil, ctx.Err() }}
	answer := httptest.NewRecorder()
	r.reply(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, base+"/x", nil), console.Actor{Role: console.Operator})
	if answer.Code != http.StatusServiceUnavailable || answer.Body.Len() == 0 {
		t.Errorf("answered %d %q", answer.Code, answer.Body)
	}
}

// connectionOf is an http.ResponseWriter that keeps the read deadline of its connection.
type connectionOf struct {
	http.ResponseWriter

	read time.Time
}

// SetReadDeadline stands for the method of the connection.
func (c *connectionOf) SetReadDeadline(t time.Time) error { c.read = t; return nil }

// TestReadBodiesHaveNoDeadline checks that the read deadline of a body's pieces ends with the body.
func TestReadBodiesHaveNoDeadline(t *testing.T) {
	c := &connectionOf{ResponseWriter: httptest.NewRecorder()}
	body := &steady{strings.NewReader("x"), http.NewResponseController(c)}
	if _, err := body.Read(make([]byte, 1)); err != nil || c.read.IsZero() {
		t.Fatalf("a piece has no deadline: %v", err)
	}
	if _, err := io.ReadAll(body); err != nil || !c.read.IsZero() {
		t.Errorf("after the body the deadline is %s: %v", c.read, err)
	}
}

// TestReasonsAreMeasuredInCharacters checks that a reason may have 200 characters of more than one byte.
func TestReasonsAreMeasuredInCharacters(t *testing.T) {
	a := askedAPI(t, natstest.JetStream(t))
	for n, refused := range map[int]bool{mostWhy: false, mostWhy + 1: true} {
		q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, base+"/redrives", strings.NewReader(fmt.Sprintf(`{"why": %q}`, strings.Repeat("ü", n))))
		_, err := a.redrives.start(t.Context(), &request{Request: q})
		if err == nil || strings.Contains(err.Error(), "why is over") != refused {
			t.Errorf("a reason of %d characters: %v", n, err)
		}
	}
}

package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/cli/help"
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

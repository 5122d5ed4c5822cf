package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

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

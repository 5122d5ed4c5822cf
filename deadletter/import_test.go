package deadletter_test

import (
	"strings"
	"testing"
	"time"

	"weir/deadletter"

	"github.com/nats-io/nats.go"
)

// TestCopyWithTwoIDs checks that the error of a copy names the header that is wrong.
func TestCopyWithTwoIDs(t *testing.T) {
	c := deadletter.Copy{Subject: "weir.dead.pay.overflow.k", Stored: time.Now(), Header: nats.Header{
		"Content-Type": {"text/plain"}, "Nats-Msg-Id": {"letter.x", "letter.y"}, "X-One": {"1"}, "X-Two": {"2"},
	}}
	for range 20 {
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), "header Nats-Msg-Id cannot") {
			t.Fatalf("it is refused with %v", err)
		}
	}
}

package worker

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"weir/cmd/weir/internal/config/environment"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
)

// TestWhyNotConnected checks that a reason that several reconnecting connections share is logged once.
func TestWhyNotConnected(t *testing.T) {
	var log bytes.Buffer
	w := &link{settings: &environment.Settings{}, lifetime: &lifetime{log: slog.New(slog.NewTextHandler(&log, nil))}}
	tell := w.whyNotConnected()
	var connections sync.WaitGroup
	for range 8 {
		connections.Go(func() { tell(&nats.Conn{}, nats.ErrNoServers) })
	}
	await.Return(t, "the connections", connections.Wait)
	if n := strings.Count(log.String(), "still no connection"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
	tell(&nats.Conn{}, nats.ErrAuthorization)
	if n := strings.Count(log.String(), "still no connection"); n != 2 {
		t.Errorf("another reason is not told:\n%s", log.String())
	}
}

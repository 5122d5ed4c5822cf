package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest/await"

	"github.com/nats-io/nats-server/v2/server"
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

// lines are lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) { l <- string(line); return len(line), nil }

// TestExpectedRefusalIsNotLogged checks that a question that the user may lack the right to ask leaves no warning in the
// log each time. A refusal of anything else does.
func TestExpectedRefusalIsNotLogged(t *testing.T) {
	ns := runNATS(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		Users: []*server.User{{Username: "u", Password: "x", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{connect.SyncRight, "elsewhere"}},
		}}},
	})
	log := make(lines, 16)
	w := &link{
		lifetime: newLifetime(t.Context(), time.Second, slog.New(slog.NewTextHandler(log, nil))),
		settings: &environment.Settings{Instance: "one"}, natsURL: "nats://u:x@" + ns.Addr().String(),
	}
	t.Cleanup(func() {
		if err := errors.Join(w.undo(), await.Result(t, "the end of the parts", w.lower.Wait)); err != nil {
			t.Error(err)
		}
	})
	denied := &connect.Denials{}
	nc, _, err := w.connectAside("http", denied)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := connect.AskSyncing(t.Context(), nc, denied, "", nil); !errors.Is(err, connect.ErrMayNotAsk) {
			t.Fatal(err)
		}
	}
	if err := nc.Publish("elsewhere", nil); err != nil {
		t.Fatal(err)
	}
	if line := await.Receive(t, "a warning", log); !strings.Contains(line, "elsewhere") {
		t.Errorf("logged: %s", line)
	}
}

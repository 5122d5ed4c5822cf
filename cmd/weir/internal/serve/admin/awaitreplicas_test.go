package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go"
)

// TestAWeirWithoutALeaseIsAwaited checks that a command does not report success while a weir on its embedded server
// may call and has not confirmed: before it answers operators, while it is silent, and if its answer is an error or
// cannot be read. The registry of leases exists there and is empty.
func TestAWeirWithoutALeaseIsAwaited(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	nc := js.Conn()
	if _, err := lease.OpenRegistry(t.Context(), js, 1); err != nil {
		t.Fatal(err)
	}
	stop, err := StandAlone(nc)
	if err != nil {
		t.Fatal(err)
	}
	awaited := func() *awaitedReplicas {
		t.Helper()
		m, err := awaitReplicas(t.Context(), &connect.Connection{Conn: nc, JetStream: js})
		if err != nil {
			t.Fatal(err)
		}
		m.waits, m.again = answerWaits{time.Second, 100 * time.Millisecond}, time.Second
		err = m.ask(t.Context(), configSubject, func(data []byte) replica {
			var s ConfigState
			_ = json.Unmarshal(data, &s)
			return replica{s.Instance, s.Session}
		})
		if err != nil && !errors.Is(err, errSilent) {
			t.Fatal(err)
		}
		return m
	}
	for name, answer := range map[string]func(*nats.Msg){
		"it starts":          nil,
		"it is silent":       func(*nats.Msg) {},
		"it answers nothing": func(m *nats.Msg) { _ = m.Respond([]byte("?")) },
		"it fails": func(m *nats.Msg) {
			_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Nats-Service-Error-Code": {codeFailed}, "Nats-Service-Error": {"x"}}})
		},
	} {
		var sub *nats.Subscription
		if answer != nil {
			if sub, err = nc.Subscribe(configSubject, answer); err != nil {
				t.Fatal(err)
			}
		}
		if m := awaited(); m.complete() || m.missing() != "the weir that runs this server has not answered within 20s" {
			t.Errorf("%s: complete %t, missing %q", name, m.complete(), m.missing())
		}
		if sub != nil {
			if err := sub.Unsubscribe(); err != nil {
				t.Fatal(err)
			}
		}
	}
	sub, err := nc.Subscribe(configSubject, func(m *nats.Msg) { _ = m.Respond(marshal(ConfigState{Instance: "a"})) })
	if err != nil {
		t.Fatal(err)
	}
	if !awaited().complete() {
		t.Error("an answer is not enough")
	}
	if err := errors.Join(sub.Unsubscribe(), stop()); err != nil {
		t.Fatal(err)
	}
	if !awaited().complete() {
		t.Error("a weir that has stopped is awaited")
	}
}

// TestReplicaThatIsBehindIsNamed checks the message about a replica that answers and has not put a pause in force.
func TestReplicaThatIsBehindIsNamed(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := js.Conn().Subscribe(pausedSubject.Of("pay", ""), func(m *nats.Msg) {
		cancel() // stands for the end of the time
		_ = m.Respond(marshal(pausedAnswer{Instance: "b\x1b"}))
	}); err != nil {
		t.Fatal(err)
	}
	o := &OperatorCommand{API: "pay"}
	o.Paused = true
	err := o.awaitInForce(ctx, &connect.Connection{Conn: js.Conn(), JetStream: js}, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "pay: the pause is stored, but instance \"b") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%q", err)
	}
}

package stream

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestRightIsAskedBeforeEveryTry: what was sent in vain is not sent again by a writer that has lost the right to.
func TestRightIsAskedBeforeEveryTry(t *testing.T) {
	nc := natstest.JetStream(t).Conn()
	w, err := NewWriter(nc, nil, 10, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	sub, err := nc.SubscribeSync("nobody.stores.this")
	if err != nil {
		t.Fatal(err)
	}
	if err := sub.AutoUnsubscribe(1); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	go func() {
		if msg, err := sub.NextMsgWithContext(ctx); err == nil {
			_ = msg.Respond([]byte("surprise")) // an answer that tells nothing
		}
	}()
	go func() { _ = w.Run(ctx) }()
	for _, tries := range []int{1, 2} { // the second finds nobody there
		done, asked := make(chan error, 1), 0
		w.WriteWhile(func() bool { asked++; return asked <= tries }, &nats.Msg{Subject: "nobody.stores.this", Header: nats.Header{}}, func(_ uint64, err error) { done <- err })
		if err := await.Receive(t, "the verdict on a message", done); !errors.Is(err, ErrNotNow) || asked != tries+1 {
			t.Errorf("asked %d times, then %v", asked, err)
		}
	}
}

package stream

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestRightIsAskedBeforeEveryTry checks that a Writer does not send a message again if its writer has lost the right to
// store it.
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
	for _, tries := range []int{1, 2} { // the second try finds no responder
		asked := 0
		err := w.WriteWhile(func() bool { asked++; return asked <= tries }, &nats.Msg{Subject: "nobody.stores.this", Header: nats.Header{}}).Err
		if !errors.Is(err, ErrNotNow) || asked != tries+1 {
			t.Errorf("asked %d times, then %v", asked, err)
		}
	}
}

// TestStoredIsOnDisk checks that a message that an Exchange reports as stored is on disk, whether it was sent alone or
// in a group. If the disk fails, it is unknown what is stored.
func TestStoredIsOnDisk(t *testing.T) {
	js := natstest.JetStream(t)
	cfg := jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs"}}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	disk := &noted{hold: make(chan struct{})}
	x, err := NewExchange(js.Conn(), disk)
	if err != nil {
		t.Fatal(err)
	}
	message := func(id string) *nats.Msg { return &nats.Msg{Subject: "jobs", Header: nats.Header{"Nats-Msg-Id": {id}}} }
	commit := func(ids ...string) (answered chan []Answer) {
		answered = make(chan []Answer, 1)
		var msgs []*nats.Msg
		for _, id := range ids {
			msgs = append(msgs, message(id))
		}
		go func() { answered <- x.Commit(t.Context(), msgs) }()
		return answered
	}
	for _, ids := range [][]string{{"a"}, {"b", "c", "d"}, {"a"}} { // the last is a duplicate: it may not be on disk
		answered := commit(ids...)
		select {
		case got := <-answered:
			t.Fatalf("%v: %+v, before the disk had it", ids, got)
		case disk.hold <- struct{}{}:
		}
		for i, a := range await.Receive(t, "the answers", answered) {
			if a.Err != nil || a.Seq == 0 {
				t.Errorf("%s: %+v", ids[i], a)
			}
		}
		if asked := disk.taken(); !slices.Equal(asked, []string{"JOBS"}) {
			t.Errorf("%v asked the disk of %q", ids, asked)
		}
	}
	close(disk.hold)
	disk.err = errors.New("it takes nothing")
	for _, a := range await.Receive(t, "the answers", commit("e", "f")) {
		if !errors.Is(a.Err, ErrUnanswered) || !errors.Is(a.Err, disk.err) {
			t.Errorf("where the disk fails: %+v", a)
		}
	}
}

// TestRefusedAfterDoubt checks that a refusal for the expected sequence does not decide about an earlier try, which may
// have stored the message.
func TestRefusedAfterDoubt(t *testing.T) {
	nc := natstest.JetStream(t).Conn()
	x, err := NewExchange(nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan *nats.Msg, 2)
	if _, err := nc.ChanSubscribe("jobs", asked); err != nil {
		t.Fatal(err)
	}
	go func() {
		stale := `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"}}`
		for _, answer := range []string{"surprise", stale} {
			_ = (<-asked).Respond([]byte(answer))
		}
	}()
	got := x.Singly(t.Context(), []*nats.Msg{{Subject: "jobs", Header: nats.Header{}}})[0]
	if !errors.Is(got.Err, ErrUnanswered) || !errors.Is(got.Err, ErrStale) {
		t.Errorf("a message that may be stored: %+v", got)
	}
}

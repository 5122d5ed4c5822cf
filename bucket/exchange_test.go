package bucket

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// TestReadAck is what a stream may answer, and what it means for the message.
func TestReadAck(t *testing.T) {
	other := errors.New("any other")
	for _, c := range []struct {
		data      string
		status    string
		seq       uint64
		duplicate bool
		err       error
	}{
		{data: `{"stream":"S","seq":17}`, seq: 17},
		{data: `{"stream":"S","seq":17,"duplicate":true}`, seq: 17, duplicate: true},
		{data: `{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"},"stream":"S","seq":0}`, err: errFull},
		{data: `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`, err: other},
		{data: `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`, err: other},
		{data: `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"}}`, err: errStale},
		{data: `{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`, err: errStale},
		{data: `{"error":{"code":400,"err_code":10111,"description":"rollup value invalid: x"}}`, err: errNotKnown},
		{data: `{"error":{"code":503,"err_code":10047,"description":"insufficient storage resources available"}}`, err: other},
		{data: "", status: "503", err: errRetry},
		{data: "", err: errUnanswered},
		{data: "surprise", err: errUnanswered},
	} {
		msg := &nats.Msg{Data: []byte(c.data), Header: nats.Header{}}
		if c.status != "" {
			msg.Header.Set("Status", c.status)
		}
		got := readAck(reply{msg: msg})
		right := errors.Is(got.err, c.err)
		if errors.Is(c.err, other) {
			right = got.err != nil && !errors.Is(got.err, errFull) && !errors.Is(got.err, errStale) && !errors.Is(got.err, errUnanswered)
		}
		if got.seq != c.seq || got.duplicate != c.duplicate || !right {
			t.Errorf("%q: %+v", c.data, got)
		}
	}
	if got := readAck(reply{err: errUnsent}); !errors.Is(got.err, errUnsent) {
		t.Errorf("no answer: %+v", got)
	}
}

// TestUnsure: once a message may have been stored, only a stream that looked for its id can say it was not.
func TestUnsure(t *testing.T) {
	for _, err := range []error{errStale, errRetry, errUnsent, errors.New("no room")} {
		if settles(err) || !errors.Is(inDoubt(err), errUnanswered) || !errors.Is(inDoubt(err), err) {
			t.Errorf("after a try of unknown end, %v settles it", err)
		}
	}
	for _, err := range []error{nil, errFull, errNotKnown} {
		if !settles(err) {
			t.Errorf("%v does not settle it", err)
		}
	}
}

// TestGroupingLearns: what is cheaper is done, what is dearer is tried now and then, and never with a large group.
func TestGroupingLearns(t *testing.T) {
	for _, c := range []struct {
		name            string
		together, apart time.Duration // of one message
	}{{"every write synced", time.Millisecond, 10 * time.Millisecond}, {"not synced", 10 * time.Millisecond, time.Millisecond}} {
		t.Run(c.name, func(t *testing.T) {
			var g grouping
			wrong := 0
			for i := range 10000 {
				n := 1 + i%maxGroup
				together := g.choose(n)
				if n < leastGroup {
					if together {
						t.Fatal("a batch of one")
					}
					continue
				}
				cheaper := c.together < c.apart
				if i > 1000 && together != cheaper {
					if wrong++; n > tryAtMost {
						t.Fatalf("the dearer way was tried with %d messages", n)
					}
				}
				if together {
					g.learn(&g.together, n, c.together*time.Duration(n))
				} else {
					g.learn(&g.apart, n, c.apart*time.Duration(n))
				}
			}
			if wrong == 0 || wrong > 9000/tryEvery+1 {
				t.Errorf("the dearer way was tried %d times", wrong)
			}
		})
	}
}

// TestLateReply: a reply that comes when nobody waits for it any more is no reply to the next message in its place.
func TestLateReply(t *testing.T) {
	nc, err := nats.Connect(startTestServer(t, t.TempDir(), server.RANDOM_PORT).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	asked := make(chan *nats.Msg, 2)
	if _, err := nc.ChanSubscribe("stream", asked); err != nil {
		t.Fatal(err)
	}
	x, err := newExchange(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	var late *nats.Msg
	go func() {
		late = <-asked
		giveUp()
		next := <-asked
		_ = late.Respond([]byte("late"))
		_ = next.Respond([]byte("next"))
	}()
	message := func() []*nats.Msg { return []*nats.Msg{{Subject: "stream"}} }
	if got := x.do(ctx, message(), every)[0]; got.msg != nil || !errors.Is(got.err, errUnanswered) || errors.Is(got.err, errUnsent) {
		t.Errorf("a message without a reply: %+v", got)
	}
	if got := x.do(t.Context(), message(), every)[0]; got.msg == nil || string(got.msg.Data) != "next" {
		t.Errorf("the next message got: %+v", got)
	}
	if err := x.close(); err != nil {
		t.Error(err)
	}
}

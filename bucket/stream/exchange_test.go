package stream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestReadAck checks what each possible answer of a stream means for the message.
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
		{data: `{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"},"stream":"S","seq":0}`, err: ErrFull},
		{data: `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`, err: other},
		{data: `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`, err: other},
		{data: `{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 4"}}`, err: ErrStale},
		{data: `{"error":{"code":400,"err_code":10164,"description":"wrong last sequence"}}`, err: ErrStale},
		{data: `{"error":{"code":400,"err_code":10111,"description":"rollup value invalid: x"}}`, err: ErrNotKnown},
		{data: `{"error":{"code":503,"err_code":10047,"description":"insufficient storage resources available"}}`, err: other},
		{data: "", status: "503", err: ErrRetry},
		{data: "", err: ErrUnanswered},
		{data: "surprise", err: ErrUnanswered},
	} {
		msg := &nats.Msg{Data: []byte(c.data), Header: nats.Header{}}
		if c.status != "" {
			msg.Header.Set("Status", c.status)
		}
		got := readAck(Reply{Msg: msg})
		right := errors.Is(got.Err, c.err)
		if errors.Is(c.err, other) {
			right = got.Err != nil && !errors.Is(got.Err, ErrFull) && !errors.Is(got.Err, ErrStale) && !errors.Is(got.Err, ErrUnanswered)
		}
		if got.Seq != c.seq || got.Duplicate != c.duplicate || !right {
			t.Errorf("%q: %+v", c.data, got)
		}
	}
	if got := readAck(Reply{Err: ErrUnsent}); !errors.Is(got.Err, ErrUnsent) {
		t.Errorf("no answer: %+v", got)
	}
}

// TestPlainAck checks that plainAck reads the same as the decoder, and leaves any other form to the decoder.
func TestPlainAck(t *testing.T) {
	if name, seq, ok := plainAck([]byte(`{"stream":"WEIR_a_0","seq":18446744073709551615}`)); !ok || name != "WEIR_a_0" || seq != 18446744073709551615 {
		t.Errorf("%q %d %v", name, seq, ok)
	}
	for _, data := range []string{
		"", "{}", `{"stream":"S","seq":}`, `{"stream":"S","seq":0}`, `{"stream":"S","seq":01}`, `{"stream":"S","seq":+1}`, `{"stream":"S","seq":-1}`,
		`{"stream":"S","seq":1_0}`, `{"stream":"S","seq":18446744073709551616}`, `{"stream":"S","seq":1,"duplicate":true}`, `{"stream":"S","domain":"D","seq":1}`,
		`{"stream":"a\u0062","seq":1}`, `{"stream":"S","seq":1}}`, `{"stream":"S","seq":1`, `{"stream":"S","seq": 1}`,
	} {
		if name, seq, ok := plainAck([]byte(data)); ok {
			t.Errorf("%s: %q %d", data, name, seq)
		}
	}
}

// TestUnsure checks that once a message may have been stored, only an answer of a stream that has checked the message's
// id can say that it was not.
func TestUnsure(t *testing.T) {
	for _, err := range []error{ErrStale, ErrRetry, ErrUnsent, errors.New("no room")} {
		if settles(err) || !errors.Is(InDoubt(err), ErrUnanswered) || !errors.Is(InDoubt(err), err) {
			t.Errorf("after a try of unknown end, %v settles it", err)
		}
	}
	for _, err := range []error{nil, ErrFull, ErrNotKnown} {
		if !settles(err) {
			t.Errorf("%v does not settle it", err)
		}
	}
}

// TestGroupingLearns checks that the cheaper way is used, and that the dearer way is tried sometimes, never with a
// large group.
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

// TestLateReply checks that a reply that comes too late is not taken for the reply to a later message.
func TestLateReply(t *testing.T) {
	nc, err := nats.Connect(natstest.Start(t, t.TempDir(), 0).ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	asked := make(chan *nats.Msg, 2)
	if _, err := nc.ChanSubscribe("stream", asked); err != nil {
		t.Fatal(err)
	}
	x, err := NewExchange(nc, nil)
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
	if got := x.Do(ctx, message(), Every)[0]; got.Msg != nil || !errors.Is(got.Err, ErrUnanswered) || errors.Is(got.Err, ErrUnsent) {
		t.Errorf("a message without a reply: %+v", got)
	}
	if got := x.Do(t.Context(), message(), Every)[0]; got.Msg == nil || string(got.Msg.Data) != "next" {
		t.Errorf("the next message got: %+v", got)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// TestReplyToNoMessage checks that a reply to a message that was never sent is ignored. Any client that may publish to
// the inbox can send such a reply.
func TestReplyToNoMessage(t *testing.T) {
	nc, err := nats.Connect(natstest.Start(t, t.TempDir(), 0).ClientURL(), nats.Timeout(await.Patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	x, err := NewExchange(nc, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = nc.Subscribe("stream", func(m *nats.Msg) {
		for _, index := range []string{"-1", "1", "x"} {
			_ = nc.Publish(strings.TrimSuffix(m.Reply, "0")+index, []byte("stray"))
		}
		_ = m.Respond([]byte("answer"))
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := x.Do(t.Context(), []*nats.Msg{{Subject: "stream"}}, Every)[0]; got.Msg == nil || string(got.Msg.Data) != "answer" {
		t.Errorf("the message got: %+v", got)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

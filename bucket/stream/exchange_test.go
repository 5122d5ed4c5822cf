package stream

import (
	"context"
	"errors"
	"math/rand/v2"
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

// TestGroupingLearns checks that the cheaper way is used for each size of a group, and that a way that costs more than
// twice as much is tried seldom, and never with a large group if it costs far more. With a batch that costs a fixed
// time, as on a stream with one copy, single messages are cheaper in small groups and the batch is cheaper in large
// ones.
func TestGroupingLearns(t *testing.T) {
	for _, c := range []struct {
		name            string
		batch           time.Duration // of one batch, whatever its size
		together, apart time.Duration // of one message
	}{
		{"every write synced", 0, time.Millisecond, 10 * time.Millisecond},
		{"not synced", 0, 10 * time.Millisecond, time.Millisecond},
		{"every write synced, and a batch has files of its own", 33 * time.Millisecond, 200 * time.Microsecond, 2 * time.Millisecond},
		{"not synced, and a batch has files of its own", 33 * time.Millisecond, 200 * time.Microsecond, 150 * time.Microsecond},
	} {
		for _, sizes := range []struct {
			name string
			size func(i int) int
		}{
			{"mixed", func(i int) int { return 1 + i*7%maxGroup }},
			{"first small, then large", func(i int) int {
				if i < 1000 {
					return 1 + i%8
				}
				return maxGroup - i%8
			}},
			{"first of two, then large", func(i int) int {
				if i < 1000 {
					return 1 + i%2
				}
				return maxGroup - i%200
			}},
		} {
			t.Run(c.name+"/"+sizes.name, func(t *testing.T) {
				var g grouping
				chance := rand.New(rand.NewPCG(1, 2))
				tried, wrong := 0, 0
				for i := range 10000 {
					n := sizes.size(i)
					together := g.choose(n)
					if n < leastGroup {
						if together {
							t.Fatal("a batch of one")
						}
						continue
					}
					of := map[bool]time.Duration{true: c.batch + c.together*time.Duration(n), false: c.apart * time.Duration(n)}
					if i > 1100 && of[together] > 2*of[!together] {
						if tried++; n > tryAtMost && of[together] > 2*tryAtCost*of[!together] {
							wrong++
						}
					}
					// The machine does other work.
					took := time.Duration(float64(of[together]) * (0.7 + 0.6*chance.Float64()))
					if together {
						g.learn(&g.together, n, took)
					} else {
						g.learn(&g.apart, n, took)
					}
				}
				if wrong > 0 {
					t.Errorf("a far dearer way was used for %d groups of more than %d messages", wrong, tryAtMost)
				}
				if tried > 9000/tryEvery+1 {
					t.Errorf("the dearer way was used %d times", tried)
				}
			})
		}
	}
}

// TestCostOutlivesAnElection checks that one group that took far longer than usual does not make a way seem dear for
// long, and that a way that stays dear is seen to be.
func TestCostOutlivesAnElection(t *testing.T) {
	var c cost
	learn := func(groups int, each time.Duration) {
		for i := range groups {
			n := leastGroup + i%tryAtMost
			c.learn(n, time.Duration(n)*each)
		}
	}
	learn(100, time.Millisecond)
	c.learn(2, 10*time.Second)
	learn(16, time.Millisecond)
	if of := time.Duration(c.of(tryAtMost)); of > 2*tryAtMost*time.Millisecond {
		t.Errorf("after an election a group of %d costs %v", tryAtMost, of)
	}
	learn(32, 100*time.Millisecond)
	if of := time.Duration(c.of(tryAtMost)); of < tryAtMost*50*time.Millisecond {
		t.Errorf("on a slow store a group of %d costs %v", tryAtMost, of)
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

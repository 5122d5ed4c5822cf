package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/bucket/natstest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestNewest checks that a reading from the end gives all requested messages, each once, the newest first, whether they
// lie close together or far apart, and no more than allowed.
func TestNewest(t *testing.T) {
	js := natstest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
	all := map[string][]uint64{}
	put := func(subject string, n int, body string) {
		t.Helper()
		for range n {
			if _, err := js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: []byte(body)}, jetstream.WithStallWait(time.Minute)); err != nil {
				t.Fatal(err)
			}
			seq := uint64(len(all["s.>"]) + 1)
			all["s.>"], all[subject] = append(all["s.>"], seq), append(all[subject], seq)
		}
		await.Receive(t, "the messages to be stored", js.PublishAsyncComplete())
	}
	put("s.many", 6000, "x") // more than a block, and dense
	put("s.rare", 2, "x")
	var between time.Time
	await.Until(t, "the server's clock to go on", func() bool {
		s, err := js.Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		between = s.CachedInfo().State.LastTime.Add(time.Nanosecond)
		return time.Now().After(between)
	})
	put("s.many", 900, "x")
	put("s.large", 40, strings.Repeat("x", 500<<10)) // more bytes than a block
	put("s.many", 700, "x")
	since := func(seqs []uint64) []uint64 {
		return slices.DeleteFunc(slices.Clone(seqs), func(s uint64) bool { return s <= 6002 })
	}
	for name, c := range map[string]struct {
		n    Newest
		want []uint64
		all  bool
	}{
		"all":               {Newest{Bare: true}, all["s.>"], true},
		"with bodies":       {Newest{}, all["s.>"], true},
		"dense":             {Newest{Subject: "s.many"}, all["s.many"], true},
		"rare":              {Newest{Subject: "s.rare"}, all["s.rare"], true},
		"large":             {Newest{Subject: "s.large"}, all["s.large"], true},
		"none":              {Newest{Subject: "s.none"}, nil, true},
		"the newest of all": {Newest{Most: 1000}, all["s.>"][len(all["s.>"])-1000:], false},
		"as many as are":    {Newest{Subject: "s.large", Most: 40}, all["s.large"], true},
		"since":             {Newest{Since: between}, since(all["s.>"]), true},
		"since, of a few":   {Newest{Subject: "s.rare", Since: between}, nil, true},
		"since and bounded": {Newest{Subject: "s.many", Since: between, Most: 10}, all["s.many"][len(all["s.many"])-10:], false},
	} {
		c.n.JetStream, c.n.Stream = js, "S"
		var got []uint64
		var oldest time.Time
		reach, err := c.n.Read(t.Context(), func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			if got, oldest = append(got, meta.Sequence.Stream), meta.Timestamp; c.n.Bare != (len(msg.Data()) == 0) {
				return fmt.Errorf("a message has a body of %d bytes", len(msg.Data()))
			}
			return nil
		})
		want := slices.Clone(c.want)
		slices.Reverse(want)
		if err != nil || !slices.Equal(got, want) || reach != (Reach{len(want), oldest, c.all}) {
			t.Errorf("%s: %d messages and %+v, %v; want %d", name, len(got), reach, err, len(want))
		}
	}
	consumers, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	for name := range consumers.ConsumerNames(t.Context()).Name() {
		t.Errorf("consumer %s is left behind", name)
	}
	seen, enough := 0, Newest{JetStream: js, Stream: "S"}
	take := func(end error) func(jetstream.Msg, *jetstream.MsgMetadata) error {
		return func(jetstream.Msg, *jetstream.MsgMetadata) error { seen++; return end }
	}
	if _, err := enough.Read(t.Context(), take(ErrEnough)); err != nil || seen != 1 {
		t.Errorf("who has enough gets %d and %v", seen, err)
	}
	broken := errors.New("broken")
	if _, err := enough.Read(t.Context(), take(broken)); !errors.Is(err, broken) {
		t.Errorf("who fails gets %v", err)
	}
	if _, err := (Newest{JetStream: js, Stream: "T"}).Read(t.Context(), take(nil)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("without a stream: %v", err)
	}
}

// TestBareBlockIsBounded: a block of messages without bodies holds no more bytes of headers than a block may.
func TestBareBlockIsBounded(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	source, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}})
	if err != nil {
		t.Fatal(err)
	}
	const messages, large = 400, 30 << 10
	for range messages {
		m := &nats.Msg{Subject: "s.a", Header: nats.Header{"Large": {strings.Repeat("x", large)}}}
		if _, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	await.Receive(t, "the messages to be stored", js.PublishAsyncComplete())
	n := Newest{JetStream: js, Stream: "S", Bare: true}
	b, err := n.block(t.Context(), source, 1, messages)
	if err != nil || !b.dropped || len(b.kept) > mostBytes/large || len(b.kept) < mostBytes/large-10 {
		t.Errorf("a block keeps %d messages of %d bytes: %v", len(b.kept), large, err)
	}
	reach, err := n.Read(t.Context(), func(jetstream.Msg, *jetstream.MsgMetadata) error { return nil })
	if err != nil || reach.Read != messages || !reach.All {
		t.Errorf("all blocks have %+v, %v", reach, err)
	}
}

package stream

import (
	"testing"

	"weir/bucket/natstest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestAskReplica checks that a replica gives the same message as the leader, even if the stream allows no direct reads,
// and that the leader is asked if the replica's message does not suit.
func TestAskReplica(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	for name, direct := range map[string]bool{"DIRECT": true, "INDIRECT": false} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}, AllowDirect: direct}); err != nil {
			t.Fatal(err)
		}
		msg := &nats.Msg{Subject: name, Header: nats.Header{"X-One": {"1"}, "X-Two": {"2", "3"}}, Data: []byte("body")}
		for _, m := range []*nats.Msg{msg, {Subject: name}} {
			if _, err := js.PublishMsg(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		for _, request := range []string{`{"seq":1}`, `{"seq":2}`, `{"seq":2,"next_by_subj":">"}`, `{"seq":3,"next_by_subj":">"}`, `{"seq":3}`} {
			want, err := AskLeader(t.Context(), js.Conn(), name, request)
			if err != nil {
				t.Fatal(err)
			}
			got, err := AskReplica(t.Context(), js.Conn(), name, request)
			if err != nil || (got == nil) != (want == nil) {
				t.Fatalf("%s %s: %v, %v", name, request, got, err)
			}
			if want == nil {
				continue
			}
			if got.Subject != want.Subject || got.Seq != want.Seq || !got.Time.Equal(want.Time) || string(got.Data) != string(want.Data) {
				t.Errorf("%s %s: a replica gives %+v, the leader %+v", name, request, got, want)
			}
			wanted, err := want.Header()
			if err != nil {
				t.Fatal(err)
			}
			if had, err := got.Header(); err != nil || len(had) != len(wanted) || len(had["X-Two"]) != len(wanted["X-Two"]) {
				t.Errorf("%s %s: headers %v, %v, of the leader %v", name, request, had, err, wanted)
			}
		}
		for suits, asked := range map[bool]uint64{true: 1, false: 2} {
			before := js.Conn().Stats().OutMsgs
			m, err := MessageAt(t.Context(), js.Conn(), name, 1, func(*LeaderMessage) bool { return suits })
			if err != nil || m == nil || m.Seq != 1 {
				t.Errorf("%s: %v, %v", name, m, err)
			}
			if n := js.Conn().Stats().OutMsgs - before; direct && n != asked {
				t.Errorf("%d requests, not %d, if a message suits: %t", n, asked, suits)
			}
		}
	}
}

// TestAskMuteReplica checks that the leader is asked if a replica does not answer.
func TestAskMuteReplica(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MUTE", Subjects: []string{"mute"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "mute", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Conn().SubscribeSync("$JS.API.DIRECT.GET.MUTE"); err != nil {
		t.Fatal(err)
	}
	if m, err := AskReplica(t.Context(), js.Conn(), "MUTE", `{"seq":1}`); err != nil || m == nil || m.Seq != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

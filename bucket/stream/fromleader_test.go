package stream

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
)

// TestLeaderAnswered checks which answers count as the leader's.
func TestLeaderAnswered(t *testing.T) {
	peers := func(names ...string) (all []*jetstream.PeerInfo) {
		for _, name := range names {
			all = append(all, &jetstream.PeerInfo{Name: name})
		}
		return all
	}
	for name, c := range map[string]struct {
		cluster *jetstream.ClusterInfo
		want    bool
	}{
		"no cluster":             {nil, true},
		"one server":             {&jetstream.ClusterInfo{Leader: "n0"}, true},
		"the leader of three":    {&jetstream.ClusterInfo{Leader: "n0", Replicas: peers("n1", "n2")}, true},
		"a member, no leader":    {&jetstream.ClusterInfo{Replicas: peers("n0", "n1", "n2")}, false},
		"the last, no leader":    {&jetstream.ClusterInfo{}, false},
		"a member, a new leader": {&jetstream.ClusterInfo{Leader: "n0", Replicas: peers("n0", "n2")}, false},
	} {
		if got := leaderAnswered(c.cluster); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestFromLeader checks that an answer without a leader is no answer: the request is repeated until the leader answers
// or the time is up. A single server's answers count. The requests reach a real server through another subject, where
// the leader is taken out of the first answers.
func TestFromLeader(t *testing.T) {
	t.Parallel()
	js := natstest.JetStream(t)
	nc := js.Conn()
	cfg := jetstream.StreamConfig{Name: "there", Subjects: []string{"there"}}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if s, err := FromLeader(js).Stream(t.Context(), "there"); err != nil || s.CachedInfo().Config.Name != "there" {
		t.Fatalf("from a single server: %v", err)
	}
	var without atomic.Int32 // so many answers name no leader
	if _, err := nc.Subscribe("electing.STREAM.INFO.*", func(m *nats.Msg) {
		reply, err := nc.Request("$JS.API"+m.Subject[len("electing"):], m.Data, AnswerWait)
		if err != nil {
			return // the lookup fails without an answer
		}
		var answer map[string]any
		if json.Unmarshal(reply.Data, &answer) == nil && answer["error"] == nil && without.Add(-1) >= 0 {
			answer["cluster"] = map[string]any{"name": "c"}
		}
		data, err := json.Marshal(answer)
		if err == nil {
			_ = m.Respond(data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	electing, err := jetstream.NewWithAPIPrefix(nc, "electing")
	if err != nil {
		t.Fatal(err)
	}
	led := FromLeader(electing)
	without.Store(2)
	s, err := led.Stream(t.Context(), "there")
	if err != nil || s.CachedInfo().Cluster.Leader == "" {
		t.Fatalf("after an election: %v", err)
	}
	without.Store(1)
	if info, err := s.Info(t.Context()); err != nil || info.Cluster.Leader == "" {
		t.Errorf("Info after an election: %v", err)
	}
	if _, err := led.Stream(t.Context(), "missing"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("a missing stream: %v", err)
	}

	without.Store(1 << 30)
	for name, ask := range map[string]func(context.Context) error{
		"Stream": func(ctx context.Context) error { _, err := led.Stream(ctx, "there"); return err },
		"Info":   func(ctx context.Context) error { _, err := s.Info(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNoLeader) || !unanswered(err) {
			t.Errorf("%s without a leader: %v", name, err)
		}
	}
}

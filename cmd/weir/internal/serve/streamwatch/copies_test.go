package streamwatch

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestCopiesAreJudged checks which copies are certainly missing, and since when, by the looks at one stream.
func TestCopiesAreJudged(t *testing.T) {
	t.Parallel()
	type peer = jetstream.PeerInfo
	begin := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	current := peer{Name: "n1", Current: true, Active: time.Millisecond}
	behind := func(lag uint64) []peer { return []peer{current, {Name: "n2", Active: time.Second, Lag: lag}} }
	away := func(ago time.Duration) []peer { return []peer{current, {Name: "n2", Active: ago, Lag: 5}} }
	for name, c := range map[string]struct {
		looks   [][]peer // ten seconds apart; the leader is another server
		certain string   // the server that certainly lacks the stream after the last look; "-": none
		since   time.Duration
	}{
		"all are current": {[][]peer{{current, {Name: "n2", Current: true}}}, "-", 0},
		"one look":        {[][]peer{away(time.Minute)}, "-", 0},
		"not seen":        {[][]peer{away(time.Minute), away(70 * time.Second)}, "n2", -time.Minute},
		"never heard of":  {[][]peer{away(0), away(0)}, "n2", 0},
		"its route is gone": {
			[][]peer{{current, {Name: "n2", Current: true, Offline: true, Active: time.Second}}, {current, {Name: "n2", Offline: true, Active: 11 * time.Second}}},
			"n2", -time.Second,
		},
		"a busy stream":      {[][]peer{behind(4), behind(3), behind(9), behind(2), behind(7), behind(6)}, "-", 0},
		"it catches up":      {[][]peer{behind(900), behind(700), behind(500), behind(300), behind(100)}, "-", 0},
		"it stays behind":    {[][]peer{behind(4), behind(4), behind(5), behind(5)}, "n2", 0},
		"it was away before": {[][]peer{away(time.Minute), away(70 * time.Second), behind(900), behind(100)}, "n2", -time.Minute},
		"it is back":         {[][]peer{away(time.Minute), away(70 * time.Second), {current, {Name: "n2", Current: true}}}, "-", 0},
		"it moves":           {[][]peer{{current, {Name: "n2", Current: true}, {Name: "n3"}}, {current, {Name: "n2", Current: true}, {Name: "n3"}}}, "-", 0},
		"no server":          {[][]peer{{current}, {current}}, "", 0},
	} {
		var found copies
		for i, peers := range c.looks {
			info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}, Cluster: &jetstream.ClusterInfo{Leader: "n0"}}
			for j := range peers {
				info.Cluster.Replicas = append(info.Cluster.Replicas, &peers[j])
			}
			was := found.missing
			found = copies{}
			found.judge(was, info, begin.Add(time.Duration(i)*10*time.Second))
		}
		certain := "-"
		for server, m := range found.missing {
			if m.certain {
				certain = server
				if since := m.since.Sub(begin); since != c.since {
					t.Errorf("%s: missing since %s, want %s", name, since, c.since)
				}
			}
		}
		if certain != c.certain {
			t.Errorf("%s: %q lacks a copy, want %q", name, certain, c.certain)
		}
	}
}

// TestSingleCopiesAreNotJudged checks that a stream with one copy lacks none.
func TestSingleCopiesAreNotJudged(t *testing.T) {
	t.Parallel()
	for _, cluster := range []*jetstream.ClusterInfo{nil, {Leader: "n0"}} {
		var found copies
		found.judge(nil, &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 1}, Cluster: cluster}, time.Now())
		if len(found.missing) > 0 {
			t.Errorf("%+v", found)
		}
	}
}

package streamwatch

import (
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// peer is what a leader says of another server's copy.
type peer = jetstream.PeerInfo

// infoOf returns the information of a stream that is configured to have three copies.
func infoOf(last uint64, peers ...peer) *jetstream.StreamInfo {
	info := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}, Cluster: &jetstream.ClusterInfo{Leader: "n0"}}
	info.State.LastSeq = last
	for i := range peers {
		info.Cluster.Replicas = append(info.Cluster.Replicas, &peers[i])
	}
	return info
}

// TestCopiesAreJudged checks which copies are certainly missing, and since when, by the looks at one stream.
func TestCopiesAreJudged(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	current := peer{Name: "n1", Peer: "p1", Current: true, Active: time.Millisecond}
	is := func(p peer) []peer { p.Name, p.Peer = "n2", "p2"; return []peer{current, p} }
	behind := func(lags ...uint64) (looks [][]peer) {
		for _, lag := range lags {
			looks = append(looks, is(peer{Active: time.Second, Lag: lag}))
		}
		return looks
	}
	away := func(ago time.Duration) []peer { return is(peer{Active: ago, Lag: 5}) }
	gone := [][]peer{away(time.Minute), away(70 * time.Second)}
	rises := make([]uint64, 16)
	for i := range rises {
		rises[i] = uint64(i + 1)
	}
	for name, c := range map[string]struct {
		looks   [][]peer // ten seconds apart; the leader is another server
		grows   uint64   // by how many messages the stream grows between two looks
		certain string   // the server that certainly lacks the stream after the last look; "-": none
		since   time.Duration
	}{
		"all are current": {[][]peer{is(peer{Current: true})}, 0, "-", 0},
		"one look":        {gone[:1], 0, "-", 0},
		"not seen":        {gone, 0, "p2", -time.Minute},
		"never heard of":  {[][]peer{away(0), away(0)}, 0, "p2", 0},
		"its route is gone": {
			[][]peer{is(peer{Current: true, Offline: true, Active: time.Second}), is(peer{Offline: true, Active: 11 * time.Second})}, 0, "p2", -time.Second,
		},
		"a busy stream":               {behind(4, 3, 9, 2, 7, 6, 6, 7), 100, "-", 0},
		"it catches up":               {behind(900, 700, 500, 300, 100), 0, "p2", 0},
		"it catches up in time":       {behind(900, 500, 100), 0, "-", 0},
		"it has caught up, but busy":  {behind(900, 700, 500, 300, 90), 100, "-", 0},
		"it stays behind":             {behind(4, 4, 5, 5), 0, "p2", 0},
		"it stays behind a busy one":  {behind(400, 500, 600, 700), 100, "p2", 0},
		"it is stuck, and looks near": {behind(rises...), 1000, "p2", 120 * time.Second},
		"stuck, and growth came":      {append(append(behind(200, 200, 200, 200), behind(250)...), behind(300)...), 1000, "-", 0},
		"it was away before":          {append(slices.Clone(gone), behind(900, 100)...), 0, "p2", -time.Minute},
		"away before, and now busy":   {append(slices.Clone(gone), behind(5)...), 100, "-", 0},
		"a new leader of a busy one":  {append(behind(4, 3), is(peer{Lag: 1000})), 100, "-", 0},
		"it has not joined":           {[][]peer{is(peer{Pending: true}), is(peer{Pending: true})}, 100, "p2", 0},
		"it is back":                  {append(slices.Clone(gone), is(peer{Current: true})), 0, "-", 0},
		"it moves": {
			[][]peer{append(is(peer{Current: true}), peer{Name: "n3"}), append(is(peer{Current: true}), peer{Name: "n3"})}, 0, "-", 0,
		},
		"no server":      {[][]peer{{current}, {current}}, 0, "", 0},
		"a renamed one":  {[][]peer{away(time.Minute), {current, {Name: unknownName, Peer: "p2", Offline: true}}}, 0, "p2", -time.Minute},
		"without its id": {[][]peer{{current, {Name: "n2"}}, {current, {Name: "n2"}}}, 0, "n2", 0},
	} {
		var found copies
		for i, peers := range c.looks {
			found.judge(infoOf(1000+uint64(i)*c.grows, peers...), begin.Add(time.Duration(i)*10*time.Second))
		}
		certain := "-"
		for server, m := range found.behind {
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

// TestReportedCopyIsStuck checks that a copy that was reported is not near only because its stream grows fast: its lag
// must not rise.
func TestReportedCopyIsStuck(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	var found copies
	for i, look := range []struct {
		last, lag uint64
		certain   bool
	}{{1000, 20, false}, {1000, 20, false}, {1000, 20, false}, {1000, 20, true}, {9000, 60, true}, {9000, 60, true}, {17000, 50, false}} {
		at := begin.Add(time.Duration(i) * 10 * time.Second)
		found.judge(infoOf(look.last, peer{Peer: "p1", Current: true}, peer{Peer: "p2", Active: time.Second, Lag: look.lag}), at)
		if found.behind["p2"].certain != look.certain {
			t.Errorf("look %d: %+v", i, found.behind)
		}
	}
}

// TestAnswersCross checks that a copy whose answer reaches the leader while the leader speaks of it, so that the leader
// says that it was active 0 ago, is not missing, unless it lacks more than the stream has grown.
func TestAnswersCross(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	for lacks, lags := range map[bool][]uint64{false: {4, 3, 9, 2, 7, 6}, true: {1000, 1000}} {
		found := copies{}
		found.judge(infoOf(1000, peer{Peer: "p1", Current: true}, peer{Peer: "p2", Current: true}), begin)
		for i, lag := range lags {
			at := begin.Add(time.Duration(i+1) * 10 * time.Second)
			found.judge(infoOf(1100+uint64(i)*100, peer{Peer: "p1", Current: true}, peer{Peer: "p2", Lag: lag}), at)
			if m := found.behind["p2"]; !lacks && (m.certain || m.away) {
				t.Errorf("look %d: %+v", i, m)
			}
		}
		if found.behind["p2"].certain != lacks {
			t.Errorf("lags %v: %+v", lags, found.behind)
		}
	}
}

// TestStuckCopyOfSlowStream checks that a copy is missing if its lag never falls while the stream grows in steps.
func TestStuckCopyOfSlowStream(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	var found copies
	for i := range uint64(20) {
		step := (i + 1) / 2
		at := begin.Add(time.Duration(i) * 10 * time.Second)
		found.judge(infoOf(1000*(step+1), peer{Peer: "p1", Current: true}, peer{Peer: "p2", Active: time.Second, Lag: step + 1}), at)
	}
	if !found.behind["p2"].certain {
		t.Errorf("%+v", found.behind)
	}
}

// TestDrainIsGrowth checks that a copy is not missing because it is some entries behind while many messages are deleted.
func TestDrainIsGrowth(t *testing.T) {
	t.Parallel()
	begin := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	var found copies
	for i := range uint64(6) {
		info := infoOf(1000, peer{Peer: "p1", Current: true}, peer{Peer: "p2", Active: time.Second, Lag: 1 + i%2})
		info.State.Msgs = 1000 - 100*i
		found.judge(info, begin.Add(time.Duration(i)*10*time.Second))
	}
	if found.behind["p2"].certain {
		t.Errorf("%+v", found.behind)
	}
}

// TestJoiningServersAreNotLacking checks that a stream that is being copied to more servers does not lack servers.
func TestJoiningServersAreNotLacking(t *testing.T) {
	t.Parallel()
	var found copies
	info := infoOf(1)
	info.Cluster.Desired = &jetstream.DesiredClusterInfo{}
	for range 3 {
		found.judge(info, time.Now())
	}
	if len(found.behind) > 0 {
		t.Errorf("%+v", found.behind)
	}
}

// TestSingleCopiesAreNotJudged checks that a stream with one copy lacks none.
func TestSingleCopiesAreNotJudged(t *testing.T) {
	t.Parallel()
	for _, cluster := range []*jetstream.ClusterInfo{nil, {Leader: "n0"}} {
		var found copies
		found.judge(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 1}, Cluster: cluster}, time.Now())
		if found.lack() || len(found.behind) > 0 {
			t.Errorf("%+v", found)
		}
	}
}

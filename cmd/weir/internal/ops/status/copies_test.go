package status

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/serve/admin"
)

// TestMissingCopies checks that a server that lacks copies is a warning at first, and a problem if it does not catch up.
// Streams without a leader are a problem much sooner: an election ends within seconds.
func TestMissingCopies(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	one := admin.StreamCopies{Stream: "WEIR_RESULTS", Current: 2, Copies: 3}
	for name, c := range map[string]struct {
		lacking   admin.Lacking
		says, fix string
	}{
		"away": {
			admin.Lacking{Server: "n2", Since: now, Offline: true, Count: 1, Streams: []admin.StreamCopies{one}},
			"NATS server n2, which other servers do not reach, lacks a current copy of 1 stream since 2030-01-02T12:00:00.000Z: WEIR_RESULTS has 2 of 3",
			"start it, or mend its connection",
		},
		"one of many": {
			admin.Lacking{Server: "n2", Since: now, Count: 9, Behind: 1, Streams: []admin.StreamCopies{one, {Stream: "WEIR_a_0", Current: 1, Copies: 3, Lag: 7}}},
			"NATS server n2 lacks a current copy of 9 streams since 2030-01-02T12:00:00.000Z: " +
				"WEIR_RESULTS has 2 of 3, WEIR_a_0 has 1 of 3 (its own is behind by 7), and 7 more",
			"wait while the numbers fall",
		},
		"no name": {
			admin.Lacking{Peer: "p2", Since: now, Count: 1, Streams: []admin.StreamCopies{one}},
			"a NATS server whose name is not known, p2, lacks a current copy of 1 stream since 2030-01-02T12:00:00.000Z: WEIR_RESULTS has 2 of 3",
			"catches up by itself",
		},
		"no server": {
			admin.Lacking{Since: now, Count: 1, Streams: []admin.StreamCopies{one}},
			"the NATS cluster has no server for a copy of 1 stream since 2030-01-02T12:00:00.000Z: WEIR_RESULTS has 2 of 3",
			"as many servers",
		},
		"no leader": {
			admin.Lacking{Leaderless: true, Since: now, Count: 2, Streams: []admin.StreamCopies{{Stream: "WEIR_RESULTS"}, {Stream: "WEIR_a_0"}}},
			"no leader has answered for 2 streams since 2030-01-02T12:00:00.000Z: WEIR_RESULTS, WEIR_a_0",
			"Empty no server's store",
		},
	} {
		for _, age := range []time.Duration{0, 29 * time.Second, 30 * time.Second, admin.CatchesUp} {
			s := &Status{At: now.Add(age), Intakes: 1, lacking: []admin.Lacking{c.lacking}}
			s.judge()
			found, healthy := s.Warnings, true
			if age >= admin.CatchesUp || c.lacking.Leaderless && age >= 30*time.Second {
				found, healthy = s.Problems, false
			}
			if len(s.Warnings)+len(s.Problems) != 1 || len(found) != 1 || s.Healthy != healthy {
				t.Errorf("%s, after %s: %+v, %+v, healthy %v", name, age, s.Problems, s.Warnings, s.Healthy)
			} else if found[0].What != c.says || !strings.Contains(found[0].Fix, c.fix) {
				t.Errorf("%s: %+v", name, found[0])
			}
		}
	}
}

// TestStoreIsEmptiedAlone checks that only one fix says to empty a store: that of a server that answers, is behind by
// nothing, and is alone in lacking copies.
func TestStoreIsEmptiedAlone(t *testing.T) {
	t.Parallel()
	const advice = "stop it, empty its store"
	n1, n2 := admin.Lacking{Server: "n1", Peer: "p1", Count: 1}, admin.Lacking{Server: "n2", Peer: "p2", Count: 1}
	with := func(l admin.Lacking, change func(*admin.Lacking)) admin.Lacking { change(&l); return l }
	for name, c := range map[string]struct {
		lacking []admin.Lacking
		empties bool
	}{
		"alone":           {[]admin.Lacking{n2}, true},
		"two replicas":    {[]admin.Lacking{n2, n2}, true},
		"two servers":     {[]admin.Lacking{n1, n2}, false},
		"behind":          {[]admin.Lacking{with(n2, func(l *admin.Lacking) { l.Behind = 1 }), n2}, false},
		"behind, said 2":  {[]admin.Lacking{with(n2, func(l *admin.Lacking) { l.Count = 9 }), with(n2, func(l *admin.Lacking) { l.Behind = 1 })}, false},
		"others":          {[]admin.Lacking{with(n2, func(l *admin.Lacking) { l.Others = true }), with(n2, func(l *admin.Lacking) { l.Count = 9 })}, false},
		"offline":         {[]admin.Lacking{with(n2, func(l *admin.Lacking) { l.Offline = true })}, false},
		"no leader":       {[]admin.Lacking{n2, {Leaderless: true, Count: 1}}, false},
		"no server":       {[]admin.Lacking{n2, {Count: 1}}, false},
		"young":           {[]admin.Lacking{with(n2, func(l *admin.Lacking) { l.Since = time.Now() })}, false},
		"offline, said 2": {[]admin.Lacking{with(n2, func(l *admin.Lacking) { l.Count = 9 }), with(n2, func(l *admin.Lacking) { l.Offline = true })}, false},
	} {
		s := &Status{At: time.Now()}
		for _, l := range c.lacking {
			s.lack(l)
		}
		s.judgeCopies()
		empties := false
		for _, p := range append(s.Problems, s.Warnings...) {
			empties = empties || strings.Contains(p.Fix, advice)
			if strings.Contains(p.Fix, advice) && !strings.Contains(p.Fix, "snapshot corrupt") {
				t.Errorf("%s: a store is to be emptied whatever the log says: %s", name, p.Fix)
			}
		}
		if empties != c.empties {
			t.Errorf("%s: %+v", name, append(s.Problems, s.Warnings...))
		}
	}
}

// TestMissingCopiesOfReplicas checks that several replicas' reports of one server are one finding: the fullest report,
// with the earliest time, by the server's id, with its name if one of them knows it.
func TestMissingCopiesOfReplicas(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	s := &Status{At: now}
	for _, l := range []admin.Lacking{
		{Server: "n2", Peer: "p2", Since: now.Add(-time.Minute), Count: 1},
		{Server: "n1", Since: now, Count: 1},
		{Peer: "p2", Since: now, Count: 3},
		{Count: 1},
		{Leaderless: true, Count: 1},
		{Count: 2},
	} {
		s.lack(l)
	}
	if l := s.lacking; len(l) != 4 || l[0].Server != "n2" || l[0].Count != 3 || !l[0].Since.Equal(now.Add(-time.Minute)) || l[2].Count != 2 || !l[3].Leaderless {
		t.Errorf("kept: %+v", s.lacking)
	}
}

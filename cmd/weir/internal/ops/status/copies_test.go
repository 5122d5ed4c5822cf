package status

import (
	"strings"
	"testing"
	"time"

	"weir/cmd/weir/internal/serve/admin"
)

// TestMissingCopies checks that a server that lacks copies is a warning at first, and a problem if it does not catch up.
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
			"NATS server n2, which the others do not reach, lacks a current copy of 1 stream since 2030-01-02T12:00:00.000Z: WEIR_RESULTS has 2 of 3",
			"start it, or mend its connection",
		},
		"one of many": {
			admin.Lacking{Server: "n2", Since: now, Count: 9, Streams: []admin.StreamCopies{one, {Stream: "WEIR_a_0", Current: 1, Copies: 3, Lag: 7}}},
			"NATS server n2 lacks a current copy of 9 streams since 2030-01-02T12:00:00.000Z: " +
				"WEIR_RESULTS has 2 of 3, WEIR_a_0 has 1 of 3 (its own is behind by 7), and 7 more",
			"empty its store",
		},
		"no server": {
			admin.Lacking{Since: now, Count: 1, Streams: []admin.StreamCopies{one}},
			"the NATS cluster has no server for a copy of 1 stream since 2030-01-02T12:00:00.000Z: WEIR_RESULTS has 2 of 3",
			"as many servers",
		},
	} {
		for _, age := range []time.Duration{0, catchesUp} {
			s := &Status{At: now.Add(age), Intakes: 1, lacking: []admin.Lacking{c.lacking}}
			s.judge()
			found, healthy := s.Warnings, true
			if age > 0 {
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

// TestMissingCopiesOfReplicas checks that several replicas' reports of one server are one finding: the fullest report,
// with the earliest time.
func TestMissingCopiesOfReplicas(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)
	s := &Status{At: now}
	for _, l := range []admin.Lacking{
		{Server: "n2", Since: now.Add(-time.Minute), Count: 1}, {Server: "n1", Since: now, Count: 1}, {Server: "n2", Since: now, Count: 3},
	} {
		s.lack(l)
	}
	if len(s.lacking) != 2 || s.lacking[0].Count != 3 || !s.lacking[0].Since.Equal(now.Add(-time.Minute)) {
		t.Errorf("kept: %+v", s.lacking)
	}
}

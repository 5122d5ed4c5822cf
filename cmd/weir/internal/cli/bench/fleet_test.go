package bench

import (
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/contest"
)

// TestFleetRefuses checks that a fleet that cannot be measured is refused before anything is started.
func TestFleetRefuses(t *testing.T) {
	for _, c := range []struct {
		name     string
		replicas []int
		path     string // of programs; "": as it is
		refused  string
	}{
		{name: "no size", refused: "--replicas: give one number or more"},
		{name: "none", replicas: []int{0}, refused: "--replicas 0: must be from 1 to 10"},
		{name: "too many", replicas: []int{1, 11}, refused: "--replicas 11: must be from 1 to 10"},
		{name: "twice", replicas: []int{2, 1, 2}, refused: "--replicas: 2 is there twice"},
		{name: "no Redis", replicas: []int{1}, path: t.TempDir(), refused: "redis-server is not installed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.path != "" {
				t.Setenv("PATH", c.path)
			}
			dir := t.TempDir()
			err := Run(t.Context(), "fleet", Options{
				Rounds: 1, Jobs: 10, Keys: 1, Body: contest.LeastBody, Seconds: 2, Durability: "always", Server: Inside,
				Replicas: c.replicas, Dir: dir, Out: io.Discard, Talk: io.Discard,
			})
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("it ended with %v, want %q", err, c.refused)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

// TestPartitionsOwned checks that the partitions of each API are read from a replica's metrics.
func TestPartitionsOwned(t *testing.T) {
	const metrics = "# TYPE weir_partitions_owned gauge\nweir_partitions_owned{api=\"busy\"} 4\nweir_partitions{api=\"steady\"} 10\n"
	if got := partitionsOwned([]byte(metrics)); !maps.Equal(got, map[string]int{"busy": 4, "steady": 0}) {
		t.Errorf("read %v", got)
	}
}

// TestTakeoverWaits checks that the replica with the most keys is chosen, and that a key waits from the kill to its next
// call by another replica. "a" calls the first of three keys, and "b" the others until it is killed.
func TestTakeoverWaits(t *testing.T) {
	const keys, second = 3, int64(time.Second)
	seconds := func(times ...float64) (all []int64) {
		for _, t := range times {
			all = append(all, int64(t*float64(second)))
		}
		return all
	}
	c := contest.Calls{Times: seconds(1, 1, 1, 0, 0, 0), By: []string{"a", "b", "b", "", "", ""}}
	if !eachCalled(c, keys) || eachCalled(contest.Calls{Times: []int64{1, 0, 1, 1, 0, 1}}, keys) {
		t.Error("it is not seen whether each key was called")
	}
	if got := busiest(c, keys); got != "b" {
		t.Errorf("the busiest is %q", got)
	}
	if got := busiest(contest.Calls{Times: []int64{1}}, 1); got != "" {
		t.Errorf("without names the busiest is %q", got)
	}
	for _, s := range []struct {
		name  string
		times []float64
		by    []string
		waits []float64
	}{
		{"both keys go on", []float64{1, 1, 1, 2.5, 7, 8}, []string{"a", "b", "b", "a", "a", "c"}, []float64{5, 6}},
		{"a call under way at the kill", []float64{1, 1, 1, 3, 2.5, 8}, []string{"a", "b", "b", "a", "b", "c"}, []float64{6}},
		{"a key moved before the kill", []float64{1, 0.5, 0.5, 3, 7, 1}, []string{"a", "b", "b", "a", "c", "a"}, []float64{5}},
		{"nothing is left", []float64{1, 1, 1}, []string{"a", "b", "b"}, nil},
	} {
		got := waitsAfter(contest.Calls{Times: seconds(s.times...), By: s.by}, keys, "b", 2*second)
		if !slices.Equal(got, s.waits) {
			t.Errorf("%s: waits of %v, want %v", s.name, got, s.waits)
		}
	}
}

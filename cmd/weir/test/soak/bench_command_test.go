package soak

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/bench"
	"weir/cmd/weir/weirtest/referee"
)

// TestBench: each measurement has every contender do each round, and gives ratios of them; what it started is gone afterwards.
// It is not parallel, because it measures.
func TestBench(t *testing.T) {
	for name, contenders := range map[string][]string{
		"accept":   {"weir", "weir, batches of 100", "bare, every write synced", "bare, without fsync", "same messages, without fsync"},
		"dispatch": {"weir, idempotent", "weir, not idempotent", "bare, every write synced", "bare, without fsync", "same messages, without fsync"},
		"latency":  {"weir, idempotent", "weir, not idempotent", "bare, every write synced", "bare, without fsync"},
		"keys":     {"weir, 20 keys waiting", "bare, 20 keys waiting", "weir, 20 keys waiting", "bare, 20 keys waiting"},
		"pace": {
			"weir, 100/s on a key", "x/time/rate, 100/s on a key", "weir, 1000/s on a key", "x/time/rate, 1000/s on a key",
			"weir, 1/s on each of 20 keys", "x/time/rate, 1/s on each of 20 keys",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			const seconds = 2
			heldUp := referee.MeasureHeldUp(t)
			err := bench.Run(t.Context(), name, bench.Options{
				Rounds: 2, Jobs: 40, Keys: 20, Body: 100, Seconds: seconds, Durability: "always", Server: bench.Inside, Dir: t.TempDir(),
				As: cli.AsJSON, Out: &out, Talk: io.Discard,
			})
			if err != nil {
				t.Fatal(err)
			}
			var r bench.Report
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range r.Contenders {
				got = append(got, c.Name)
				if len(c.Each) != 2 || slices.Min(c.Each) <= 0 || c.Figure.Least > c.Figure.Median || c.Figure.Median > c.Figure.Most {
					t.Errorf("%s has the rounds %v, the figures %+v", c.Name, c.Each, c.Figure)
				}
			}
			if !slices.Equal(got, contenders) {
				t.Errorf("measured were %q, want %q", got, contenders)
			}
			if len(r.Ratios) == 0 || slices.ContainsFunc(r.Ratios, func(x bench.Ratio) bool { return x.Figure.Median <= 0 }) {
				t.Errorf("the ratios are %+v", r.Ratios)
			}
			// Calls seem nearer to each other by what the first of them is stamped too late.
			late := min(2*heldUp.Worst(), seconds*time.Second/2).Seconds()
			if most := 1.02 * seconds / (seconds - late); name == "pace" && (r.Contenders[0].Figure.Most > most || r.Contenders[0].Figure.Least < 0.3) {
				t.Errorf("of the rate are used %+v; stamps are off by %.3f s", r.Contenders[0].Figure, late)
			}
		})
	}
}

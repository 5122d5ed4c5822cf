package soak

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/cmd/internal/contest"
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

// TestBenchFleet: fleets of one and of two replicas do each round, beside the bare loop. The report has the processor
// time and the messages of each group of processes, and how long the keys of a killed replica waited. What was started is
// gone afterwards.
func TestBenchFleet(t *testing.T) {
	if err := contest.FindRedis(); err != nil {
		t.Skip(err)
	}
	var out bytes.Buffer
	dir := t.TempDir()
	err := bench.Run(t.Context(), "fleet", bench.Options{
		Rounds: 1, Jobs: 60, Keys: 20, Body: 100, Seconds: 2, Durability: "interval", Server: bench.Inside, Replicas: []int{1, 2}, Dir: dir,
		As: cli.AsJSON, Out: &out, Talk: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
	var r bench.Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	names := []string{"bare loop", "1 replica", "2 replicas"}
	if len(r.Contenders) != len(names) || len(r.Ratios) != 3 {
		t.Fatalf("measured were %+v, the ratios are %+v", r.Contenders, r.Ratios)
	}
	for i, c := range r.Contenders {
		if c.Name != names[i] || len(c.Each) != 1 || c.Each[0] <= 0 {
			t.Errorf("%s has the rounds %v, want one of %s", c.Name, c.Each, names[i])
		}
		also := map[string]float64{}
		for _, x := range c.Also {
			also[x.Name] = x.Figure
		}
		takes := []string{"NATS, from and to clients", "NATS, between servers"}
		if i > 0 {
			takes = append(takes, "Redis, scripts", "Redis, all commands", "idle, NATS, from and to clients")
		}
		for _, name := range takes {
			if also[name] <= 0 {
				t.Errorf("%s has no %s: %v", c.Name, name, also)
			}
		}
		// The others wait for five seconds after the killed replica's last renewal, which is up to a second old.
		median, killed := also["takeover, median key"]
		if killed != (i == 2) || killed && (median < 3 || also["takeover, worst key"] < median) {
			t.Errorf("%s has the takeovers %v", c.Name, also)
		}
	}
	var text bytes.Buffer
	if err := r.Print(&text, cli.ForPeople); err != nil || !strings.Contains(text.String(), "takeover, worst key") {
		t.Errorf("the report for people, %v:\n%s", err, text.String())
	}
	t.Log("\n" + text.String())
}

package fakeapi

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestLatency(t *testing.T) {
	tests := []struct {
		latency            Latency
		median, p99, spare time.Duration // expected, give or take spare
	}{
		{Latency{}, 0, 0, 0},
		{Latency{Mean: 50 * time.Millisecond}, 50 * time.Millisecond, 50 * time.Millisecond, 0},
		{Latency{Shape: Uniform, Min: 10 * time.Millisecond, Mean: 60 * time.Millisecond, Seed: 1}, 60 * time.Millisecond, 109 * time.Millisecond, 3 * time.Millisecond},
		{Latency{Shape: Exponential, Mean: 10 * time.Millisecond, Seed: 1}, 6931 * time.Microsecond, 46 * time.Millisecond, 4 * time.Millisecond},
		{Latency{Shape: LogNormal, Mean: 10 * time.Millisecond, Seed: 1}, 10 * time.Millisecond, 100 * time.Millisecond, 15 * time.Millisecond},
		{Latency{Shape: LogNormal, Mean: 10 * time.Millisecond, Max: 20 * time.Millisecond}, 10 * time.Millisecond, 20 * time.Millisecond, time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(string(tt.latency.Shape), func(t *testing.T) {
			draws := make([]time.Duration, 10_000)
			for i := range draws {
				draws[i] = tt.latency.of(int64(i))
				if draws[i] != tt.latency.of(int64(i)) {
					t.Fatal("a call's latency changes")
				}
			}
			slices.Sort(draws)
			for _, q := range []struct{ got, want time.Duration }{{draws[5000], tt.median}, {draws[9900], tt.p99}} {
				if d := (q.got - q.want).Abs(); d > tt.spare {
					t.Errorf("%v, want %v", q.got, q.want)
				}
			}
			if draws[0] < tt.latency.Min {
				t.Errorf("shortest %v", draws[0])
			}
		})
	}
}

func TestSegment(t *testing.T) {
	for _, tt := range []struct {
		path string
		n    int
		want string
	}{
		{"/a/b/c", 1, "a"},
		{"/a/b/c", 3, "c"},
		{"/a/b/c", 4, ""},
		{"/a/b/c", -1, "c"},
		{"/a/b/c", -3, "a"},
		{"/a/b/c", -4, ""},
		{"/", 1, ""},
		{"", -1, ""},
		{"/a%2Fb/", -1, "a/b"},
		{"/%zz", 1, "%zz"},
		{"//a", 1, "a"},
	} {
		if got := segment(tt.path, tt.n); got != tt.want {
			t.Errorf("segment %d of %q: %q, want %q", tt.n, tt.path, got, tt.want)
		}
	}
}

// TestInstants checks that the wall clock gives the time between two instants if the machine was restarted in between.
func TestInstants(t *testing.T) {
	wall := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	earlier := instant{wall: wall, boot: "a", mono: time.Hour}
	if got := (instant{wall: wall.Add(-time.Hour), boot: "a", mono: 2 * time.Hour}).since(earlier); got != time.Hour {
		t.Errorf("same start: %v", got)
	}
	if got := (instant{wall: wall.Add(time.Minute), boot: "b", mono: 1}).since(earlier); got != time.Minute {
		t.Errorf("another start: %v", got)
	}
}

// TestUnwritableLedgerEndsTheBilling checks an api whose ledger cannot be written: every answer is 500, even of a call
// that was under way, nothing is billed, and Close returns the error.
func TestUnwritableLedgerEndsTheBilling(t *testing.T) {
	api, err := Start(Options{Ledger: filepath.Join(t.TempDir(), "ledger"), Price: 1, Script: func(_ context.Context, r *Request) Behaviour {
		if r.Path == "/last" {
			_ = r.call.api.ledger.file.Close() // between its arrival and its answer
		}
		return Behaviour{}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path   string
		status int
	}{{"/", 200}, {"/last", 500}, {"/", 500}} {
		res, err := http.Post(api.URL()+tt.path, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s: %d", tt.path, res.StatusCode)
		}
	}
	if totals := api.Totals(); totals.Billed != 1 || totals.Ended != 3 || totals.ByStatus[500] != 2 {
		t.Errorf("totals %+v", totals)
	}
	if err := api.Close(); err == nil || !errors.Is(err, os.ErrClosed) {
		t.Errorf("close: %v", err)
	}
}

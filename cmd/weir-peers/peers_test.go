//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain makes the test binary play roles, as the program itself does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "role" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestRun runs a small measurement of weir and Asynq. Each contender brings every job once, and none is left out.
// Afterwards every process that was started is gone.
func TestRun(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is missing (apt-get install redis-server)")
	}
	dir := t.TempDir()
	o, err := parse([]string{
		"--only", "asynq", "--rounds", "1", "--jobs", "100", "--rates", "100", "--seconds", "2", "--measure", "dispatch,accept,rate", "--dir", dir,
	})
	if err != nil {
		t.Fatal(err)
	}
	var talk bytes.Buffer
	o.talk = &talk
	r := &Report{Rounds: o.Rounds, Jobs: o.Jobs, Seconds: o.Seconds}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if err := r.fill(ctx, o); err != nil {
		t.Fatalf("%v\n%s", err, talk.String())
	}
	names := []string{"weir", "weir, api not idempotent", "weir, interval", "Asynq, appendfsync always", "Asynq, appendfsync everysec"}
	for what, all := range map[string][]*Found{"end to end": r.EndToEnd, "intake": r.Intake} {
		names := names
		if what == "intake" { // it has the same queue of the same weir
			names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "weir, api not idempotent" })
		}
		if len(all) != len(names) {
			t.Fatalf("%s: %d were measured of %v: %+v", what, len(all), names, r.LeftOut)
		}
		for i, f := range all {
			if f.Name != names[i] || f.Peer == "" || len(f.Jobs.Each) != o.Rounds || f.Jobs.Least <= 0 || len(f.Weir.Each) != o.Rounds || f.Repeated != 0 {
				t.Errorf("%s: %+v", what, f)
			}
		}
	}
	if r.Best == nil || len(r.Best.Peer.Each) != o.Rounds {
		t.Errorf("weir by the best peer: %+v", r.Best)
	}
	if len(r.Paces) != 2 || r.Paces[0].Name != "weir" || r.Paces[0].Use.Median <= 0 || r.Paces[0].Fullest == 0 {
		t.Errorf("rates: %+v, left out: %+v", r.Paces, r.LeftOut)
	}
	var text, object bytes.Buffer
	if err := r.print(&text, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| weir | synced", "| Asynq, appendfsync everysec | within 1 s", "| 100/s | weir |"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report has no %q:\n%s", want, text.String())
		}
	}
	if err := r.print(&object, true); err != nil {
		t.Fatal(err)
	}
	if !json.Valid(object.Bytes()) {
		t.Errorf("no JSON: %s", object.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
}

// TestAPeerThatFailsIsLeftOut checks that the other peers are measured, and that the report says why a peer is missing.
func TestAPeerThatFailsIsLeftOut(t *testing.T) {
	all := []*contender{{name: "weir"}, {name: "broken"}}
	s, r := &stage{o: options{Rounds: 3, Jobs: 10, talk: &bytes.Buffer{}}}, &Report{}
	found, err := s.contest(t.Context(), "intake", all, func(_ context.Context, _ *stage, c *contender, _ int, f *Found) error {
		if c.name == "broken" {
			return os.ErrDeadlineExceeded
		}
		f.Jobs.add(1)
		f.CPU.add(1)
		return nil
	}, r)
	if err != nil || len(found) != 1 || found[0].Name != "weir" || len(found[0].Jobs.Each) != 3 {
		t.Errorf("%+v, %v", found, err)
	}
	if len(r.LeftOut) != 1 || r.LeftOut[0].Name != "broken, intake" || r.LeftOut[0].Why != os.ErrDeadlineExceeded.Error() {
		t.Errorf("left out: %+v", r.LeftOut)
	}
}

// TestCompareIsOfTheSameRound checks that a round on a slow machine changes no ratio.
func TestCompareIsOfTheSameRound(t *testing.T) {
	all := []*Found{{Name: "other"}, {Name: "weir"}}
	all[0].Jobs.Each, all[1].Jobs.Each = []float64{20, 2, 12}, []float64{10, 1, 6}
	compare(all)
	if got := all[0].Weir; got.Median != 0.5 || got.Least != 0.5 || got.Most != 0.5 {
		t.Errorf("weir by the other is %+v", got)
	}
	compare(all[:1]) // without weir nothing is compared, and nothing panics
}

// TestBestIsOfTheRound checks that each round has a best peer of its own, and that neither weir nor a bare queue is
// one.
func TestBestIsOfTheRound(t *testing.T) {
	all := []*Found{{Name: "weir", Peer: "weir"}, {Name: "weir, interval", Peer: "weir"}, {Peer: "nats", Durable: true}, {Peer: "a", Durable: true}, {Peer: "b"}}
	for i, each := range [][]float64{{10, 10}, {900, 900}, {900, 900}, {20, 5}, {5, 40}} {
		all[i].Jobs.Each = each
	}
	got := best(all, 2)
	if got == nil || !slices.Equal(got.Peer.Each, []float64{0.5, 0.25}) || !slices.Equal(got.DurablePeer.Each, []float64{0.5, 2}) {
		t.Errorf("%+v", got)
	}
	if best(all[1:], 2) != nil || best(all[:3], 2) != nil {
		t.Error("without weir, or without peers, there is a best one")
	}
}

// TestFigures checks the median of figures in any order.
func TestFigures(t *testing.T) {
	for _, c := range []struct {
		each []float64
		want string
	}{
		{[]float64{4, 1, 3}, "3.00 (1.00, 4.00)"},
		{[]float64{4, 1, 3, 8}, "3.50 (1.00, 8.00)"},
		{[]float64{12_345, 999, 1234}, "1230 (999, 12,300)"},
		{[]float64{100_049, 99_960, 100_000}, "100,000 (100,000, 100,000)"},
	} {
		f := Figures{Each: slices.Clone(c.each)}
		f.sum()
		if f.String() != c.want || !slices.Equal(f.Each, c.each) {
			t.Errorf("%v: %s, not %s", c.each, f, c.want)
		}
	}
}

// TestParse checks that unknown and invalid flags are refused.
func TestParse(t *testing.T) {
	for _, args := range [][]string{
		{"--only", "celery"}, {"--measure", "speed"}, {"--rates", "10,x"}, {"--rates", "0"}, {"--rounds", "0"}, {"--at-once", "1001"}, {"--body", "3"}, {"more"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
	if o, err := parse(nil); err != nil || !slices.Equal(o.Rates, []int{10, 100, 1000}) || len(o.Measures) != 3 {
		t.Errorf("%+v, %v", o, err)
	}
}

package contest

import (
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"weir/cmd/internal/child"
	"weir/cmd/internal/machine"
	"weir/ingest/await"
)

// TestSpread checks the Spread of figures in any order, and of none.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		figures []float64
		want    Spread
	}{
		{nil, Spread{}},
		{[]float64{4, 1, 3}, Spread{3, 1, 4}},
		{[]float64{4, 1, 3, 8}, Spread{3.5, 1, 8}},
	} {
		given := slices.Clone(c.figures)
		if got := SpreadOf(c.figures); got != c.want || !slices.Equal(given, c.figures) {
			t.Errorf("of %v: %+v, want %+v; the figures are %v now", given, got, c.want, c.figures)
		}
	}
}

// TestRatiosAreOfTheSameRound checks that a round on a slow machine changes no ratio.
func TestRatiosAreOfTheSameRound(t *testing.T) {
	if got := Ratios([]float64{10, 1, 7, 6}, []float64{20, 2, 0, 12}); !slices.Equal(got, []float64{0.5, 0.5, 0.5}) {
		t.Errorf("the ratios are %v", got)
	}
}

// TestTurns checks that each contender has one turn in a round, and that each round begins with another contender.
func TestTurns(t *testing.T) {
	var got []int
	for round, i := range Turns(2, 3) {
		got = append(got, 10*round+i)
	}
	if !slices.Equal(got, []int{0, 1, 2, 11, 12, 10}) {
		t.Errorf("the turns are %v", got)
	}
	for range Turns(2, 3) {
		break
	}
}

// TestFullest checks that the fullest window is found wherever it begins.
func TestFullest(t *testing.T) {
	at := func(ms ...int64) (times []int64) {
		for _, m := range ms {
			times = append(times, m*int64(time.Millisecond))
		}
		return times
	}
	for _, c := range []struct {
		name   string
		times  []int64
		window time.Duration
		want   int
	}{
		{"even", at(0, 500, 1000, 1500, 2000), time.Second, 2},
		{"in the middle", at(0, 700, 1000, 1699, 2000), time.Second, 3},
		{"the machine was slow", at(0, 700, 1000, 1699, 2000), 900 * time.Millisecond, 2},
		{"no window at all", at(0, 0, 1), 0, 1},
		{"none", nil, time.Second, 0},
	} {
		if got := Fullest(c.times, c.window); got != c.want {
			t.Errorf("%s: %d, not %d", c.name, got, c.want)
		}
	}
}

// TestCPU checks that this process's CPU time grows with its work, and that the result is unknown if one of the
// processes does not exist.
func TestCPU(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("CPU is known on Linux only")
	}
	before, ok := CPU(os.Getpid())
	if !ok {
		t.Fatal("what this process used is not known")
	}
	for used := before; used < before+2*Tick; { // the timeout of the test binary ends it
		for range 10_000_000 {
			runtime.KeepAlive(used)
		}
		if used, ok = CPU(os.Getpid(), os.Getpid()); !ok {
			t.Fatal("what this process used is not known")
		}
	}
	const none = 1 << 30 // larger than any pid
	if _, ok := CPU(os.Getpid(), none); ok {
		t.Error("what a process used is known that is not there")
	}
	if _, ok := CPU(); ok {
		t.Error("what no process used is known")
	}
}

// TestCPUCountsChildren checks that a child's time counts after it has ended and was waited for.
func TestCPUCountsChildren(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("CPU is known on Linux only")
	}
	said := make(chan string, 1)
	p, err := child.Start(child.Options{
		Name: "sh", Path: "sh", Args: []string{"-c", `(i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done); echo done; exec sleep 600`},
		Attributes: machine.ChildAttributes, Line: func(line string) { said <- line },
	})
	if err != nil {
		t.Fatal(err)
	}
	if said := await.Receive(t, "the end of the loop", said); said != "done" {
		t.Fatalf("the shell said %q", said)
	}
	if used, ok := CPU(p.PID()); !ok || used < Tick {
		t.Errorf("a loop of a child that has ended took %v, known: %v", used, ok)
	}
	if err := p.Stop(stopWithin); err != nil {
		t.Fatal(err)
	}
}

// TestBody checks that the number of every job of a round fits into the least body.
func TestBody(t *testing.T) {
	if got := string(Body(mostJobs, LeastBody)); got != "10000000 xxxxxxx" {
		t.Errorf("the body is %q", got)
	}
}

package child

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/ingest/await"
)

// TestMain is also the program of the children: it does what its argument says.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "child-") {
		os.Exit(m.Run())
	}
	ended := make(chan os.Signal, 1)
	if signal.Notify(ended, syscall.SIGTERM); os.Args[1] == "child-stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	for i := range 30 {
		fmt.Println("line", i) //nolint:forbidigo // it is what the parent reads
	}
	fmt.Fprintf(os.Stderr, "WEIR_CONFIG=%q OWN=%q", os.Getenv("WEIR_CONFIG"), os.Getenv("OWN"))
	fmt.Fprintln(os.Stderr, "!")
	if os.Args[1] != "child-ends" {
		select {
		case <-ended:
		case <-time.After(await.Patience): // the parent is gone
		}
	}
	os.Exit(3)
}

func start(t *testing.T, how string, o Options) (p *Process, up <-chan string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	o.Name, o.Path, o.Args, o.Line = "the child", self, []string{how}, func(line string) { lines <- line }
	if p, err = Start(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, lines
}

// TestOutput checks that Line gets each line whole, that Log gets everything, that the last lines are kept, and that
// the child gets none of weir's settings.
func TestOutput(t *testing.T) {
	t.Setenv("WEIR_CONFIG", "of the parent")
	var log bytes.Buffer
	p, up := start(t, "child-ends", Options{Log: &log, Env: []string{"OWN=yes"}})
	await.Receive(t, "the child's end", p.Exited())
	const last = `WEIR_CONFIG="" OWN="yes"!`
	for i := range 31 {
		want := fmt.Sprint("line ", i)
		if i == 30 {
			want = last
		}
		if got := await.Receive(t, "a line", up); got != want {
			t.Errorf("line %d is %q, want %q", i, got, want)
		}
	}
	if tail := strings.Split(p.Tail(), "\n"); len(tail) != tailLines || tail[0] != "line 11" || tail[tailLines-1] != last {
		t.Errorf("its last lines are %q", tail)
	}
	if text := log.String(); !strings.HasPrefix(text, "line 0\n") || !strings.HasSuffix(text, last+"\n") {
		t.Errorf("its log is %q", text)
	}
	if p.State().ExitCode() != 3 {
		t.Errorf("it ended with %s", p.State())
	}
}

// TestEnds checks that a process is seen to run and to be gone, and that it is stopped in order if possible and killed
// otherwise.
func TestEnds(t *testing.T) {
	p, up := start(t, "child-stays", Options{})
	for range 31 {
		await.Receive(t, "the child to be up", up)
	}
	if p.Gone(t.Context(), time.Millisecond) || p.PID() == os.Getpid() {
		t.Error("it runs, and is said to be gone")
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if p.Gone(stopped, time.Hour) {
		t.Error("it runs, and is said to be gone")
	}
	p.halt()
	if err := p.Stop(await.Patience); err != nil || p.State().ExitCode() != 3 {
		t.Errorf("told to stop it ended with %s, %v", p.State(), err)
	}
	if err := p.Stop(0); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	p, up = start(t, "child-stubborn", Options{})
	for range 31 {
		await.Receive(t, "the child to be up", up)
	}
	if err := p.Stop(10 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "the child did not stop within 10ms") {
		t.Errorf("one that does not stop: %v", err)
	}
	if status, ok := p.State().Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %s", p.State())
	}
	if _, err := Start(Options{Name: "nobody", Path: "/no/such/program"}); err == nil || !strings.Contains(err.Error(), "start nobody") {
		t.Errorf("one that is not there: %v", err)
	}
}

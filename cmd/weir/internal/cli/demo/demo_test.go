package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"weir/bucket"
	"weir/cmd/internal/machine"
	"weir/ingest/await"
)

// TestDemo runs the demo with the real binary, to its end and to each way of ending it early.
func TestDemo(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "weir")
	if out, err := exec.CommandContext(await.Build(t), "go", "build", "-o", bin, "weir/cmd/weir").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	// The test occupies the usual ports, so that no two demos compete for one.
	for _, addr := range []string{"127.0.0.1:4222", "127.0.0.1:8480"} {
		if l, err := net.Listen("tcp", addr); err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
	}
	t.Run("to the end", func(t *testing.T) {
		t.Parallel()
		s := startShow(t, bin, "--exit", "--json")
		verdict, code := bucket.Pass, 0
		// On a busy machine the demo does not judge the rate, but everything else.
		if strings.HasPrefix(s.readTo("PASS", "INCONCLUSIVE"), "INCONCLUSIVE") {
			verdict, code = bucket.Inconclusive, 1
		}
		s.ended(code)
		checkFigures(t, s.stdout.Bytes(), verdict)
	})
	t.Run("serving on", func(t *testing.T) {
		t.Parallel()
		s := startShow(t, bin, "--json")
		s.readTo("PASS", "INCONCLUSIVE")
		url := strings.Fields(s.readTo("nats request -s "))[3]
		s.readTo("dead ls")
		s.submit(url)
		s.signal(syscall.SIGINT)
		s.ended(0)
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		s := startShow(t, bin)
		s.readTo("A burst.")
		s.signal(syscall.SIGTERM)
		s.ended(1)
	})
	t.Run("killed", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("only Linux lets a child die with its parent")
		}
		t.Parallel()
		s := startShow(t, bin)
		s.readTo("A burst.")
		s.signal(syscall.SIGKILL)
		_ = await.Result(t, "the end of a killed demo", s.cmd.Wait)
		s.childrenGone()
	})
}

func checkFigures(t *testing.T, figures []byte, verdict bucket.Outcome) {
	var r report
	if err := json.Unmarshal(figures, &r); err != nil {
		t.Fatalf("%q: %v", figures, err)
	}
	if r.Verdict != verdict || worst(r.findings()) != verdict {
		t.Errorf("%s, want %s: %+v", r.Verdict, verdict, r.findings())
	}
	if r.Sent != burstJobs || r.Accepted < capacity || r.Accepted+r.Throttled != r.Sent {
		t.Errorf("accepted %d + throttled %d != sent %d", r.Accepted, r.Throttled, r.Sent)
	}
	if r.Letters != r.Throttled || r.Events != r.Throttled {
		t.Errorf("%d letters and %d events for %d throttled", r.Letters, r.Events, r.Throttled)
	}
	if r.Aside == 0 || r.Called != r.Accepted+r.Aside || r.Results != r.Called || r.Calls != r.Called+r.Repeated {
		t.Errorf("%d accepted + %d aside, %d called, %d results, %d calls, %d repeated", r.Accepted, r.Aside, r.Called, r.Results, r.Calls, r.Repeated)
	}
	if r.Lost != 0 || r.Waiting != 0 || r.BilledTwice != 0 || r.OutOfOrder != 0 || r.Unasked != 0 || r.Limited != 0 {
		t.Errorf("lost %d, waiting %d, billed twice %d, out of order %d, unasked %d, 429s %d",
			r.Lost, r.Waiting, r.BilledTwice, r.OutOfOrder, r.Unasked, r.Limited)
	}
	if r.Repeated != 1 {
		t.Errorf("%d calls were repeated; the kill was to break off one", r.Repeated)
	}
	if want := dollars(int64(r.Called) * callPrice); r.Charged != want {
		t.Errorf("charged %s for %d jobs, want %s", r.Charged, r.Called, want)
	}
}

// show is a running demo.
type show struct {
	t      *testing.T
	cmd    *exec.Cmd
	tmp    string // the directory for its temporary directory
	stdout bytes.Buffer
	lines  *bufio.Scanner
	story  []string
}

func startShow(t *testing.T, bin string, args ...string) *show {
	s := &show{t: t, tmp: t.TempDir(), cmd: exec.Command(bin, append([]string{"demo"}, args...)...)}
	s.cmd.Env = append(machine.PlainEnv(), "TMPDIR="+s.tmp)
	told := s.cmd.StdoutPipe
	if len(args) > 0 && args[len(args)-1] == "--json" {
		told = s.cmd.StderrPipe
		s.cmd.Stdout = &s.stdout
	}
	story, err := told()
	if err != nil {
		t.Fatal(err)
	}
	s.lines = bufio.NewScanner(story)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(await.Patience, func() { _ = s.cmd.Process.Kill() }) // ends every read
	t.Cleanup(func() {
		limit.Stop()
		_ = s.cmd.Process.Kill()
		if t.Failed() {
			t.Log(strings.Join(s.story, "\n"))
		}
	})
	return s
}

// readTo reads up to a line with one of these texts, and returns it.
func (s *show) readTo(texts ...string) string {
	s.t.Helper()
	for s.lines.Scan() {
		s.story = append(s.story, s.lines.Text())
		for _, text := range texts {
			if strings.Contains(s.lines.Text(), text) {
				return s.lines.Text()
			}
		}
	}
	s.t.Fatalf("the demo ended before it said one of %q", texts)
	return ""
}

func (s *show) submit(url string) {
	nc, err := nats.Connect(url, nats.Timeout(await.Patience))
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	answer, err := nc.Request("weir.jobs.demo.you", []byte(`{"hello":"weir"}`), 10*time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	if r, err := readReceipt(answer); err != nil || r.Error != nil || r.Position != 1 {
		s.t.Errorf("not a receipt: %s", answer.Data)
	}
}

func (s *show) signal(signal os.Signal) {
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// ended waits for the end of the demo, and checks its exit code and that nothing stays behind.
func (s *show) ended(code int) {
	s.t.Helper()
	for s.lines.Scan() {
		s.story = append(s.story, s.lines.Text())
	}
	err := await.Result(s.t, "the end of the demo", s.cmd.Wait)
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		s.t.Fatal(err)
	}
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Errorf("exit code %d, want %d", got, code)
	}
	s.childrenGone()
	left, err := os.ReadDir(s.tmp)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(left) > 0 {
		s.t.Errorf("left behind: %v", left)
	}
}

// childrenGone waits until every weir that the demo has named is gone.
func (s *show) childrenGone() {
	s.t.Helper()
	pids := regexp.MustCompile(`\(pid (\d+)\)`).FindAllStringSubmatch(strings.Join(s.story, "\n"), -1)
	if len(pids) == 0 {
		s.t.Error("the demo named no process")
	}
	for _, pid := range pids {
		await.Until(s.t, "the end of weir, process "+pid[1]+", whose demo is over", func() bool { return !running(pid[1]) })
	}
}

package recovery

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"
)

const reloadedYAML = `apis:
  pay:
    url: %s/v1
    timeout: 10s
    jitter: 20ms
    bucket: {rate: 50/s, capacity: 5000, in_flight: 4}
    keys: {slow: {rate: %s}}
`

// TestHangUpReloadsUnderLoad: closing a terminal must not park a single job of an api that is not idempotent. SIGHUP
// reloads the file: an unchanged or a wrong file changes nothing, and a changed one takes effect without a restart.
func TestHangUpReloadsUnderLoad(t *testing.T) {
	t.Parallel()
	r := weirtest.NewKillRig(t, fakeapi.Options{
		KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1},
		Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: time.Millisecond, Mean: 10 * time.Millisecond, Seed: 1},
	}, strings.Replace(reloadedYAML, "%s}}", "1/h}}", 1))
	r.Proc.Kill()
	var log *program.Book
	r.Proc, log = startHeard(t, r.Env, "msg=ready", "serve")
	file := strings.TrimPrefix(r.Env[0], "WEIR_CONFIG=")
	ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
	defer cancel()
	for i := range 5 { // all but one wait for an hour
		r.Publish(ctx, "weir.jobs.pay.slow", fmt.Sprintf("slow-%d", i), nil)
	}
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			for n := p; publishing.Err() == nil; n += 8 {
				r.Publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", p), fmt.Sprintf("job-%d", n), fmt.Appendf(nil, `{"n":%d}`, n))
			}
		})
	}
	calls := func(n int) {
		t.Helper()
		before := len(r.API.All())
		if err := r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(before+n) }); err != nil {
			t.Fatalf("waited for %d more calls after %d: %v\n%s", n, before, err, log.String())
		}
	}
	calls(50)
	for range 3 {
		r.Proc.Signal(t, syscall.SIGHUP)
		calls(20)
	}
	r.Proc.Await(t, log, "has no changes")
	weirtest.WriteFile(t, file, fmt.Sprintf(reloadedYAML, "nowhere", "1/fortnight"))
	r.Proc.Signal(t, syscall.SIGHUP)
	r.Proc.Await(t, log, "fortnight")
	r.Proc.Await(t, log, "write url: https://") // every problem is reported
	calls(20)
	weirtest.WriteFile(t, file, fmt.Sprintf(reloadedYAML, r.API.URL(), "50/s"))
	r.Proc.Signal(t, syscall.SIGHUP)
	r.Proc.Await(t, log, `msg="configuration applied"`)
	stop()
	await.Return(t, "the producers", producers.Wait)
	for r.Queued() != 0 { // the slow ones too
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			t.Fatalf("%d jobs still wait", r.Queued())
		}
	}
	ended := r.Outcomes()
	for id := range r.Acks {
		if out := ended[id]; len(out) != 1 || out[0] != "done" {
			t.Errorf("%s ended as %v", id, out)
		}
	}
	if len(r.Acks) < 100 || len(r.API.All()) != len(r.Acks) {
		t.Errorf("%d calls of %d jobs", len(r.API.All()), len(r.Acks))
	}
	t.Logf("%d jobs, all done, by one process", len(r.Acks))
	if code := r.Proc.Stop(t); code != 0 {
		t.Errorf("it ended with %d", code)
	}
}

// TestHangUpDuringStart: weir reads its file once more when it is ready. The file is a pipe, at which the start waits until
// weir has been told, and which weir can read only as often as the test fills it.
func TestHangUpDuringStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "weir.yaml")
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	p, log := startHeard(t, []string{
		"WEIR_CONFIG=" + file, "WEIR_DATA_DIR=" + filepath.Join(dir, "data"), "WEIR_NATS_LISTEN=127.0.0.1:0", "WEIR_HTTP_LISTEN=",
	}, "", "serve")
	isRead := func(what string) *os.File {
		return await.Result(t, what, func() *os.File { // open blocks until weir opens the file, too
			pipe, err := os.OpenFile(file, os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
			}
			return pipe
		})
	}
	fill := func(pipe *os.File) {
		if _, err := pipe.WriteString(weirtest.UnreachableAPI); err != nil {
			t.Fatal(err)
		}
		if err := pipe.Close(); err != nil {
			t.Fatal(err)
		}
	}
	pipe := isRead("weir to read its file")
	p.Signal(t, syscall.SIGHUP)
	p.Await(t, log, "weir reads the configuration file again when it is ready")
	fill(pipe)
	p.Await(t, log, "msg=ready") // before that weir may still have the pipe open, and would read both texts as one
	fill(isRead("weir to read its file once more"))
	p.Await(t, log, "has no changes")
	if text := log.String(); strings.Index(text, "has no changes") < strings.Index(text, "msg=ready") {
		t.Errorf("it was read before weir was ready:\n%s", text)
	}
	if code := p.Stop(t); code != 0 {
		t.Errorf("it ended with %d:\n%s", code, log.String())
	}
}

// TestLogPipeCloses: the reader of the log goes away (`weir serve 2>&1 | head`), and calls go on.
func TestLogPipeCloses(t *testing.T) {
	t.Parallel()
	r := weirtest.NewKillRig(t, fakeapi.Options{KeepBody: 64}, strings.Replace(reloadedYAML, "%s}}", "1/s}}", 1))
	r.Proc.Kill()
	cmd := exec.Command(os.Args[0], "serve")
	cmd.Env = append(append(append(program.Environ(), "WEIR_TEST_AS_WEIR=1"), r.Env...), "WEIR_LOG_LEVEL=debug")
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Proc = &program.Process{Cmd: cmd, Exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(r.Proc.Exited)
	}()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(lines.Text(), "msg=ready") {
		_, _ = io.Discard.Write(lines.Bytes())
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
	defer cancel()
	const jobs = 20
	for i := range jobs {
		r.Publish(ctx, "weir.jobs.pay.k", fmt.Sprint(i), nil)
		r.Proc.Signal(t, syscall.SIGHUP) // each is a line of the log
	}
	err = r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= jobs })
	if err != nil {
		t.Fatalf("%d calls of %d jobs: %v", len(r.API.All()), jobs, err)
	}
	if code := r.Proc.Stop(t); code != 0 {
		t.Errorf("it ended with %d: %s", code, r.Proc.Cmd.ProcessState)
	}
}

// TestDemoCleansUp after its terminal has gone, even if it gets that signal more than once or its output is not read.
func TestDemoCleansUp(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, p *program.Process, out *os.File){
		"terminal": func(t *testing.T, p *program.Process, _ *os.File) {
			for range 3 {
				_ = p.Cmd.Process.Signal(syscall.SIGHUP) // it may have ended
			}
		},
		"pipe": func(t *testing.T, _ *program.Process, out *os.File) {
			if err := out.Close(); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("weir", "demo", "--exit") // as a script runs it: its child must be weir too
			cmd.Env = append(program.Environ(), "WEIR_TEST_AS_WEIR=1", "TMPDIR="+dir)
			out, in, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Stdout, cmd.Stderr = in, in
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p := &program.Process{Cmd: cmd, Exited: make(chan struct{})}
			go func() {
				_ = cmd.Wait()
				close(p.Exited)
			}()
			t.Cleanup(p.Kill)
			_ = in.Close()
			lines := bufio.NewScanner(out)
			for lines.Scan() && !strings.Contains(lines.Text(), "accepted") { // the burst
			}
			end(t, p, out)
			select {
			case <-p.Exited:
			case <-time.After(weirtest.Patience):
				t.Fatal("the demo goes on")
			}
			if left, err := filepath.Glob(filepath.Join(dir, "weir-demo-*")); err != nil || len(left) > 0 {
				t.Errorf("it left %v (%v) and ended with %s", left, err, p.Cmd.ProcessState)
			}
			if p.Cmd.ProcessState.Success() {
				t.Error("a demo that was cut short says that all is well")
			}
		})
	}
}

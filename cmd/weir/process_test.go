package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/machine"

	"github.com/rogpeppe/go-internal/testscript"
)

// asWeir has this binary be weir where a program of weir's starts itself: such a child gets no variable that begins with WEIR_.
const asWeir = "TEST_AS_WEIR"

// TestMain lets this test binary be weir, so that a test can kill one, and a script run one.
func TestMain(m *testing.M) {
	if os.Getenv("WEIR_TEST_AS_WEIR") == "1" || os.Getenv(asWeir) == "1" {
		os.Exit(run(context.Background(), os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"weir": main})
}

// process is a weir in a process of its own.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func startProcess(t testing.TB, env ...string) (*process, error) {
	t.Helper()
	return startProgram(t, os.Args[0], env...)
}

// startProgram starts a binary of weir, and returns when it is ready. One that ends because a server has not answered for three seconds is
// started again, as whatever starts weir does: on a busy machine the server may stand still for as long.
func startProgram(t testing.TB, program string, env ...string) (*process, error) {
	t.Helper()
	for limit := time.Now().Add(patience); ; {
		p, err := startCommand(t, exec.Command(program, "serve"), env...)
		if err == nil || !strings.Contains(err.Error(), "no NATS server answers") || time.Now().After(limit) {
			return p, err
		}
	}
}

func startCommand(t testing.TB, cmd *exec.Cmd, env ...string) (*process, error) {
	t.Helper()
	cmd.Env = append(append(os.Environ(), "WEIR_TEST_AS_WEIR=1"), env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	ready := make(chan struct{})
	var log strings.Builder
	go func() {
		lines := bufio.NewScanner(stderr)
		up := false
		for lines.Scan() {
			if !up && strings.Contains(lines.Text(), "msg=ready") {
				up = true
				close(ready)
			}
			if !up {
				log.WriteString(lines.Text() + "\n")
			}
		}
		_ = cmd.Wait() // killed, mostly
		close(p.exited)
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.exited:
		return nil, fmt.Errorf("weir ended before it was ready:\n%s", log.String())
	case <-time.After(patience):
		p.kill()
		return nil, errors.New("weir was not ready in a minute")
	}
}

func (p *process) kill() {
	if p == nil {
		return // it was not ready in time
	}
	_ = p.cmd.Process.Kill() // it may have ended
	select {
	case <-p.exited:
	case <-time.After(patience):
		panic("a weir that was killed has not ended") // nothing that a test does would help
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	addr, err := machine.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// startHeard runs a weir command in a process of its own whose log is kept, and returns when a line of it has the text.
func startHeard(t *testing.T, env []string, text string, args ...string) (*process, *book) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), "WEIR_TEST_AS_WEIR=1"), env...)
	log := &book{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its state tells more
		close(p.exited)
	}()
	t.Cleanup(p.kill)
	p.await(t, log, text)
	return p, log
}

// await waits until the process has said something.
func (p *process) await(t *testing.T, log *book, text string) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(patience)
	defer tick.Stop()
	for !strings.Contains(log.String(), text) {
		select {
		case <-tick.C:
		case <-p.exited:
			t.Fatalf("weir ended (%s) before it said %q:\n%s", p.cmd.ProcessState, text, log.String())
		case <-limit:
			t.Fatalf("weir did not say %q:\n%s", text, log.String())
		}
	}
}

// signal sends a signal to a process that must be there.
func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v (%v)", s, err, p.cmd.ProcessState)
	}
}

// stop ends the process in order and returns its exit code.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatal("weir did not stop after SIGTERM")
	}
	return p.cmd.ProcessState.ExitCode()
}

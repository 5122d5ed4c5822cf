// Package program runs weir as a program: servers that a test can kill (Process), and commands (CLI).
package program

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/ingest/await"
)

// Process is a weir in a process of its own.
type Process struct {
	Cmd    *exec.Cmd
	Exited chan struct{}
}

func StartProcess(t testing.TB, env ...string) (*Process, error) {
	t.Helper()
	return StartProgram(t, os.Args[0], env...)
}

// StartProgram starts a binary of weir and returns when the weir is ready.
func StartProgram(t testing.TB, program string, env ...string) (*Process, error) {
	t.Helper()
	return StartCommand(t, exec.Command(program, "serve"), env...)
}

func StartCommand(t testing.TB, cmd *exec.Cmd, env ...string) (*Process, error) {
	t.Helper()
	cmd.Env = append(append(Environ(), "WEIR_TEST_AS_WEIR=1"), env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{Cmd: cmd, Exited: make(chan struct{})}
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
		_ = cmd.Wait() // usually killed
		close(p.Exited)
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.Exited:
		return nil, fmt.Errorf("weir ended before it was ready:\n%s", log.String())
	case <-time.After(await.Patience):
		p.Kill()
		return nil, errors.New("weir was not ready in a minute")
	}
}

func (p *Process) Kill() {
	if p == nil {
		return // it was not ready in time
	}
	_ = p.Cmd.Process.Kill() // it may have ended
	select {
	case <-p.Exited:
	case <-time.After(await.Patience):
		panic("a weir that was killed has not ended") // the test cannot recover from that
	}
}

// Await waits until log contains a text, and fails if the process ends first.
func (p *Process) Await(t *testing.T, log *Book, text string) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(await.Patience)
	defer tick.Stop()
	for !strings.Contains(log.String(), text) {
		select {
		case <-tick.C:
		case <-p.Exited:
			t.Fatalf("weir ended (%s) before it said %q:\n%s", p.Cmd.ProcessState, text, log.String())
		case <-limit:
			t.Fatalf("weir did not say %q:\n%s", text, log.String())
		}
	}
}

// Signal sends a signal to the process, which must be running.
func (p *Process) Signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.Cmd.Process.Signal(s); err != nil {
		t.Fatalf("%s: %v (%v)", s, err, p.Cmd.ProcessState)
	}
}

// Stop ends the process with SIGTERM and returns its exit code.
func (p *Process) Stop(t *testing.T) int {
	t.Helper()
	p.Signal(t, syscall.SIGTERM)
	select {
	case <-p.Exited:
	case <-time.After(await.Patience):
		t.Fatal("weir did not stop after SIGTERM")
	}
	return p.Cmd.ProcessState.ExitCode()
}

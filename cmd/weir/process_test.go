package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/commands"
	"weir/cmd/weir/internal/config"

	"github.com/rogpeppe/go-internal/testscript"
)

// asWeir has this binary be weir where a program of weir's starts itself: such a child gets no variable that begins with WEIR_.
const asWeir = "TEST_AS_WEIR"

// referredTo are the variables that configurations of tests refer to. They stand in the environment of all tests, so that these may run side by side.
var referredTo = map[string]string{
	"PAY_TOKEN":        "secret-token",
	"WEIR_TEST_CANARY": canaryHeader, "WEIR_TEST_PRODUCER": canaryProducer, "WEIR_TEST_VIEWER": canaryViewer, "WEIR_TEST_OPERATOR": canaryOperator,
	"WEIR_TEST_OWN": "own", "WEIR_TEST_STOLEN": "stolen",
	"NATS_PRODUCER_PASSWORD": "secret-of-producer", "NATS_WORKER_PASSWORD": "secret-of-worker", "NATS_OPERATOR_PASSWORD": "secret-of-operator",
	"NATS_VIEWER_PASSWORD": "secret-of-viewer", "NATS_MOVER_PASSWORD": "secret-of-mover", "NATS_SYS_PASSWORD": "secret-of-sys",
}

// TestMain lets this test binary be weir, so that a test can kill one, and a script run one.
func TestMain(m *testing.M) {
	for name, secret := range referredTo {
		_ = os.Setenv(name, secret)
	}
	if os.Getenv("WEIR_TEST_AS_WEIR") == "1" || os.Getenv(asWeir) == "1" {
		os.Exit(commands.Run(context.Background(), os.Args[1:]))
	}
	testscript.Main(m, map[string]func(){"weir": main})
}

// variables guards the process's environment while settings are read of it.
var variables sync.Mutex

// environ returns the environment for a child.
func environ() []string {
	variables.Lock()
	defer variables.Unlock()
	return os.Environ()
}

// settingsOf returns what weir reads from these variables. The process has them only meanwhile, so tests may run side by side.
func settingsOf(t testing.TB, env map[string]string) *config.Settings {
	t.Helper()
	variables.Lock()
	defer variables.Unlock()
	for name, text := range env {
		before, had := os.LookupEnv(name)
		if err := os.Setenv(name, text); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if had {
				_ = os.Setenv(name, before)
			} else {
				_ = os.Unsetenv(name)
			}
		}()
	}
	s, err := config.ReadSettings()
	if err != nil {
		t.Fatal(err)
	}
	return s
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
	cmd.Env = append(append(environ(), "WEIR_TEST_AS_WEIR=1"), env...)
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
	cmd.Env = append(append(environ(), "WEIR_TEST_AS_WEIR=1"), env...)
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

package weirtest

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
	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/internal/config"

	"github.com/rogpeppe/go-internal/testscript"
)

// AsWeir is an environment variable that makes this binary run as weir. It is for children that weir itself starts,
// because they inherit no variable that begins with WEIR_.
const AsWeir = "TEST_AS_WEIR"

// referredTo are the variables that configurations in tests refer to. Main sets them for all tests, so that the tests
// can run side by side.
var referredTo = map[string]string{
	"PAY_TOKEN":        "secret-token",
	"SECRET_OF_CANARY": CanaryHeader, "SECRET_OF_PRODUCER": CanaryProducer, "SECRET_OF_VIEWER": CanaryViewer, "SECRET_OF_OPERATOR": CanaryOperator,
	"SECRET_OF_OWN": "own", "SECRET_OF_STOLEN": "stolen",
	"NATS_PRODUCER_PASSWORD": "secret-of-producer", "NATS_WORKER_PASSWORD": "secret-of-worker", "NATS_OPERATOR_PASSWORD": "secret-of-operator",
	"NATS_VIEWER_PASSWORD": "secret-of-viewer", "NATS_MOVER_PASSWORD": "secret-of-mover", "NATS_SYS_PASSWORD": "secret-of-sys",
}

// variables guards the process's environment while settingsOf reads settings from it.
var variables sync.Mutex

// Environ returns the environment for a child process.
func Environ() []string {
	variables.Lock()
	defer variables.Unlock()
	return os.Environ()
}

// settingsOf returns the settings that weir reads from env. It sets the variables only while it reads, so that tests
// can run side by side.
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

// Main runs the tests of a package. If a test starts the package's binary as a weir, the binary runs weir instead. So a
// test can kill a weir, and a script can run it.
func Main(m interface{ Run() int }) {
	for name, secret := range referredTo {
		_ = os.Setenv(name, secret)
	}
	weir := func() { os.Exit(commands.Run(context.Background(), os.Args[1:])) }
	if os.Getenv("WEIR_TEST_AS_WEIR") == "1" || os.Getenv(AsWeir) == "1" {
		weir()
	}
	testscript.Main(m, map[string]func(){"weir": weir})
}

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
	case <-time.After(Patience):
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
	case <-time.After(Patience):
		panic("a weir that was killed has not ended") // the test cannot recover from that
	}
}

func FreePort(t testing.TB) string {
	t.Helper()
	addr, err := machine.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// Await waits until log contains a text, and fails if the process ends first.
func (p *Process) Await(t *testing.T, log *Book, text string) {
	t.Helper()
	tick, limit := time.NewTicker(5*time.Millisecond), time.After(Patience)
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
	case <-time.After(Patience):
		t.Fatal("weir did not stop after SIGTERM")
	}
	return p.Cmd.ProcessState.ExitCode()
}

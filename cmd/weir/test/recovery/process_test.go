package recovery

import (
	"os"
	"os/exec"
	"testing"

	"weir/cmd/weir/weirtest/program"
)

// startHeard runs a weir command in a process of its own whose log is kept, and returns when a line of it has the text.
func startHeard(t *testing.T, env []string, text string, args ...string) (*program.Process, *program.Book) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(program.Environ(), "WEIR_TEST_AS_WEIR=1"), env...)
	log := &program.Book{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program.Process{Cmd: cmd, Exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // its state tells more
		close(p.Exited)
	}()
	t.Cleanup(p.Kill)
	p.Await(t, log, text)
	return p, log
}

package program

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weir/ingest/await"
)

// Ended is the result of a command.
type Ended struct {
	Code           int
	Stdout, Stderr string
}

// Command runs weir in a process of its own, with env in addition to the test's environment.
func Command(t *testing.T, env []string, args ...string) Ended {
	t.Helper()
	ctx := await.Context(t, "weir "+strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(append(Environ(), "WEIR_TEST_AS_WEIR=1"), env...)
	cmd.Dir = t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	code := ExitCode(cmd.Run())
	if ctx.Err() != nil {
		t.Fatalf("%v, which said:\n%s%s", context.Cause(ctx), stdout.String(), stderr.String())
	}
	return Ended{code, stdout.String(), stderr.String()}
}

// ExitCode returns a process's exit code, or -1 if err has none.
func ExitCode(err error) int {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ended):
		return ended.ExitCode()
	}
	return -1
}

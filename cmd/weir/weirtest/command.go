package weirtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"weir/ingest/await"
)

// Command runs a command of weir against the rig's server. It returns the output and the exit code.
func (r *Rig) Command(args ...string) (stdout string, code int) {
	r.T.Helper()
	did := Command(r.T, []string{"WEIR_NATS_URL=" + r.Worker.NATSURL()}, args...)
	if did.Code != 0 {
		r.T.Logf("weir %v ends with %d: %s", args, did.Code, did.Stderr)
	}
	return did.Stdout, did.Code
}

// Must runs a command that must succeed, and returns its output.
func (r *Rig) Must(args ...string) string {
	r.T.Helper()
	out, code := r.Command(args...)
	if code != 0 {
		r.T.Fatalf("weir %v ends with %d: %s", args, code, out)
	}
	return out
}

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

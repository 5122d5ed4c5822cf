package main

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

// command runs a command of weir against the rig's server.
func (r *rig) command(args ...string) (stdout string, code int) {
	r.t.Helper()
	did := command(r.t, []string{"WEIR_NATS_URL=" + r.worker.NATSURL()}, args...)
	if did.code != 0 {
		r.t.Logf("weir %v ends with %d: %s", args, did.code, did.stderr)
	}
	return did.stdout, did.code
}

// must runs a command that is to succeed.
func (r *rig) must(args ...string) string {
	r.t.Helper()
	out, code := r.command(args...)
	if code != 0 {
		r.t.Fatalf("weir %v ends with %d: %s", args, code, out)
	}
	return out
}

// ended is what a command said.
type ended struct {
	code           int
	stdout, stderr string
}

// command runs weir in a process of its own, as a user of the server.
func command(t *testing.T, env []string, args ...string) ended {
	t.Helper()
	ctx := await.Context(t, "weir "+strings.Join(args, " "))
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(append(environ(), "WEIR_TEST_AS_WEIR=1"), env...)
	cmd.Dir = t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, time.Second
	code := exitCode(cmd.Run())
	if ctx.Err() != nil {
		t.Fatalf("%v, which said:\n%s%s", context.Cause(ctx), stdout.String(), stderr.String())
	}
	return ended{code, stdout.String(), stderr.String()}
}

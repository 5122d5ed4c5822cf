package cli

import (
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
)

// TestHealth: a health check exits with 0 while weir is ready, with 1 while it is not, and with 5 if nothing answers.
func TestHealth(t *testing.T) {
	t.Parallel()
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  credit:\n    url: %s\n    bucket: {rate: 1/h, capacity: 9}\n")
	env := []string{"WEIR_HTTP_LISTEN=" + r.Worker.HTTPAddr()}
	if got := program.Command(t, env, "health"); got.Code != 0 || got.Stdout != "ready\n" {
		t.Errorf("a weir that is ready: %+v", got)
	}
	r.Stop()
	if got := program.Command(t, env, "health"); got.Code != cli.ExitUnreachable || !strings.Contains(got.Stderr, "/readyz") {
		t.Errorf("no weir: %+v", got)
	}
}

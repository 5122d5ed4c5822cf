package cli

import (
	"errors"
	"io"
	"strings"
	"testing"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// TestHealth: a health check exits with 0 while weir is ready, with 1 while it is not, and with 5 if nothing answers.
func TestHealth(t *testing.T) {
	r := weirtest.NewRig(t, fakeapi.Options{}, "apis:\n  credit:\n    url: %s\n    bucket: {rate: 1/h, capacity: 9}\n")
	t.Setenv("WEIR_HTTP_LISTEN", r.Worker.HTTPAddr())
	health := func() (string, int) {
		root, out := commands.Root(), &strings.Builder{}
		root.SetArgs([]string{"health"})
		root.SetOut(out)
		root.SetErr(io.Discard)
		err := root.ExecuteContext(await.Context(t, "an answer"))
		var exit *cli.Exit
		switch {
		case err == nil:
			return out.String(), 0
		case errors.As(err, &exit):
			return err.Error(), exit.Code
		}
		return err.Error(), cli.ExitFailed
	}
	if said, code := health(); code != 0 || said != "ready\n" {
		t.Errorf("a weir that is ready: exit code %d, %s", code, said)
	}
	r.Stop()
	if said, code := health(); code != cli.ExitUnreachable || !strings.Contains(said, "/readyz") {
		t.Errorf("no weir: exit code %d, %s", code, said)
	}
}

package letters

import (
	"strings"
	"testing"
)

// TestTailOffersNoUntil checks that neither the help nor the completion of `weir dead tail` offers --until, which the
// command always refuses, and that the refusal names the command that has it.
func TestTailOffersNoUntil(t *testing.T) {
	t.Parallel()
	run := func(args ...string) (string, error) {
		cmd, out := deadTailCommand(), &strings.Builder{}
		cmd.SetOut(out)
		cmd.SetErr(out)
		cmd.SetArgs(args)
		err := cmd.Execute()
		return out.String(), err
	}
	for _, args := range [][]string{{"--help"}, {"__complete", "--"}} {
		out, err := run(args...)
		if err != nil || !strings.Contains(out, "--since") || strings.Contains(out, "--until") {
			t.Errorf("%q: %v\n%s", args, err, out)
		}
	}
	if _, err := run("--until", "1h"); err == nil || !strings.Contains(err.Error(), "weir dead ls") {
		t.Errorf("--until: %v", err)
	}
}

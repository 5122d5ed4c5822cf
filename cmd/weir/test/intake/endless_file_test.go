package intake

import (
	"strings"
	"testing"

	"weir/cmd/weir/weirtest/program"
)

// TestEndlessFilesEnd: what has no end is refused, and not read until the memory is full.
func TestEndlessFilesEnd(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"config check --file /dev/zero", "config diff --file /dev/zero", "submit credit vip --data @/dev/zero",
	} {
		got := program.Command(t, []string{"GOMEMLIMIT=64MiB"}, strings.Fields(args)...)
		if got.Code == 0 || !strings.Contains(got.Stderr, "is it the right file?") {
			t.Errorf("weir %s ended with %d and said %q %q", args, got.Code, got.Stdout, got.Stderr)
		}
	}
}

package docs

import (
	"strings"
	"testing"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/weirtest/program"
)

// TestLongNamesAreUsageErrors: a command that is given a name that nothing can have says so before it asks a server.
func TestLongNamesAreUsageErrors(t *testing.T) {
	t.Parallel()
	nothing := program.CLI{T: t, NATS: "nats://127.0.0.1:9"} // nothing listens there
	long := strings.Repeat("k", 5000)
	for _, args := range [][]string{
		{"job", "x", "--api", "a", "--key", long},
		{"job", "x", "--api", long},
		{"job", long},
		{"results", "ls", "--api", long},
		{"results", "get", "x", "--api", "a", "--key", long},
		{"results", "tail", "--api", long},
		{"events", "tail", "--key", long},
		{"events", "tail", "--api", long},
		{"dead", "ls", "--key", long},
		{"dead", "stats", "--api", long},
		{"dead", "tail", "--key", long},
		{"dead", "export", "--key", long},
		{"dead", "redrive", "--key", long, "--yes"},
		{"dead", "purge", "--key", long, "--yes"},
		{"show", "a", long},
		{"cancel", "a", "x", "--key", long},
		{"pause", "a", long},
	} {
		if _, code := nothing.Run(args...); code != cli.ExitUsage {
			t.Errorf("weir %.60s ends with %d", strings.Join(args, " "), code)
		}
	}
}

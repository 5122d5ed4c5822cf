package cli

import (
	"fmt"
	"testing"

	"github.com/spf13/cobra"
)

// TestWrongNumberOfArguments checks that the error about a wrong number of arguments says which arguments the command
// takes.
func TestWrongNumberOfArguments(t *testing.T) {
	for _, c := range []struct {
		names []string
		given int
		want  string
	}{
		{[]string{"API", "KEY"}, 1, "weir takes API and KEY: weir"},
		{[]string{"API", "[KEY]"}, 0, "weir takes API, and perhaps KEY: weir"},
		{[]string{"API", "[KEY]"}, 1, "<nil>"},
		{[]string{"[VERSION]"}, 2, "weir takes nothing, or VERSION: weir"},
		{[]string{"[VERSION]"}, 0, "<nil>"},
		{nil, 1, "weir takes no arguments: weir"},
	} {
		if got := fmt.Sprint(Takes(c.names...)(&cobra.Command{Use: "weir"}, make([]string, c.given))); got != c.want {
			t.Errorf("%d for %v: %s, want %s", c.given, c.names, got, c.want)
		}
	}
	cmd := &cobra.Command{Use: "apply"}
	cmd.Flags().StringP("file", "f", "", "")
	if got := fmt.Sprint(Takes()(cmd, make([]string, 1))); got != "apply takes no arguments: name a file with -f" {
		t.Errorf("a file as an argument: %s", got)
	}
}

package docs

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"weir/cmd/weir/internal/cli/commands"
	"weir/cmd/weir/internal/cli/help"
	"weir/cmd/weir/internal/cli/terminal"

	"github.com/spf13/cobra"
)

// TestHelpFits holds the help of every command against screens of all widths: no line is wider, unless it is one word or one quotation, and no
// word is broken, left out or added.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	seen := 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, child := range cmd.Commands() {
			look(child)
		}
		var text bytes.Buffer
		cmd.SetOut(&text)
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		seen++
		for width := 40; width <= 100; width += 5 {
			fits := help.Fit(text.String(), width)
			said := slices.DeleteFunc(strings.Fields(fits), func(word string) bool { return word == `\` })
			if words := slices.DeleteFunc(strings.Fields(text.String()), func(word string) bool { return word == `\` }); !slices.Equal(words, said) {
				t.Errorf("%s at %d columns has other words:\n%s", cmd.CommandPath(), width, fits)
			}
			for line := range strings.SplitSeq(fits, "\n") {
				if terminal.Columns(line) > width && len(strings.Fields(strings.TrimSuffix(line, `\`))) > 1 && !strings.ContainsAny(line, `'"`) {
					t.Errorf("%s at %d columns: %q", cmd.CommandPath(), width, line)
				}
			}
		}
	}
	look(commands.Root())
	if seen < 40 {
		t.Errorf("only %d commands were looked at", seen)
	}
}

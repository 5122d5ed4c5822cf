package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Takes returns a check that a command gets one argument for each name. If a name is in brackets, its argument is
// optional.
func Takes(names ...string) cobra.PositionalArgs {
	least, what := 0, "no arguments"
	for i, name := range names {
		switch {
		case i == 0:
			what = name
		case strings.HasPrefix(name, "["):
			what += ", and perhaps " + strings.Trim(name, "[]")
		default:
			what += " and " + name
		}
		if !strings.HasPrefix(name, "[") {
			least++
		}
	}
	if least == 0 && len(names) > 0 {
		what = "nothing, or " + strings.Trim(what, "[]")
	}
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && len(names) == 0 && cmd.Flags().ShorthandLookup("f") != nil {
			return Usage(fmt.Errorf("%s takes %s: name a file with -f", cmd.CommandPath(), what))
		}
		if len(args) < least || len(args) > len(names) {
			return Usage(fmt.Errorf("%s takes %s: %s", cmd.CommandPath(), what, cmd.UseLine()))
		}
		return nil
	}
}

package commands

import (
	"errors"
	"fmt"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/problem"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// wrongFlag rephrases cobra's error about a flag. It suggests the flag that the user probably meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	var none *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &none) && none.GetSpecifiedShortnames() == "":
		name := none.GetSpecifiedName()
		return cli.Usage(fmt.Errorf("%s has no flag --%s%s", cmd.CommandPath(), name, meantOf(name, flagNames(cmd), "--", cmd)))
	case errors.As(err, &invalid):
		flag := invalid.GetFlag()
		return cli.Usage(fmt.Errorf("--%s %q %s", flag.Name, invalid.GetValue(), wants(flag.Value.Type())))
	}
	return cli.Usage(err)
}

// wants says why a value is not valid for a flag of this type.
func wants(kind string) string {
	switch kind {
	case "int", "int64", "uint", "uint64", "int32", "uint32":
		return "is not a whole number that fits"
	case "bool":
		return "is neither true nor false"
	case "duration":
		return "is not a duration like 30s or 5m"
	case "float64":
		return "is not a number"
	}
	return "cannot be used"
}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// meantOf suggests the name that is nearest to the given name. If none is near, it refers to the command's help.
func meantOf(name string, names []string, before string, cmd *cobra.Command) string {
	if near := problem.Closest(name, names); near != "" {
		return ": did you mean " + before + near + "?"
	}
	return "; see " + cmd.CommandPath() + " --help"
}

// group is the action of a command that has only subcommands: it shows the command's help.
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrongCommand(cmd, args[0])
	}
	return cmd.Help()
}

// wrongCommand returns the error that a command has no such subcommand. It suggests the one that the user probably
// meant.
func wrongCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	return cli.Usage(fmt.Errorf("%s has no command %q%s", cmd.CommandPath(), name, meantOf(name, names, cmd.CommandPath()+" ", cmd)))
}

// unknownCommand rephrases cobra's error about an unknown command of the root. It returns any other error unchanged.
func unknownCommand(root *cobra.Command, err error) error {
	_, rest, is := strings.Cut(err.Error(), "unknown command \"")
	if name, _, whole := strings.Cut(rest, "\""); is && whole {
		return wrongCommand(root, name)
	}
	return err
}

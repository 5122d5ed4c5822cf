// Package commands is weir's command line, with a file or a package for each command. Run runs the program.
package commands

import (
	"context"
	"errors"
	"fmt"
	"os"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/commands/configuration"
	"weir/cmd/weir/internal/cli/commands/letters"
	"weir/cmd/weir/internal/cli/commands/plans"
	"weir/cmd/weir/internal/cli/commands/submission"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

// classify returns an error with the exit code of wrong usage if err is about a configuration.
func classify(err error) error {
	var wrong *problem.Errors
	if errors.As(err, &wrong) || errors.Is(err, admin.ErrNoConfig) {
		return cli.Usage(err)
	}
	return err
}

// Run runs one command of weir with the standard streams of the process, and returns the command's exit code. It blocks
// until the command has ended.
func Run(ctx context.Context, args []string) int {
	root := Root()
	root.SetArgs(args)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if !started {
		err = unknownCommand(root, err)
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "weir: "+text)
	}
	var e *cli.Exit
	if errors.As(err, &e) {
		return e.Code
	}
	if !started {
		return cli.ExitUsage // cobra found no such command, or the arguments are wrong
	}
	return cli.ExitFailed
}

// Root returns the whole tree of commands. Shell completion and the manual are also generated from it.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Call paid APIs never too fast, never too often, never twice",
		Long: `weir accepts jobs for paid APIs from NATS, queues them, and makes the calls: never too fast, never too often,
never twice.

Commands that look at a running weir find its NATS server by WEIR_NATS_URL, or else by WEIR_NATS_LISTEN (default
` + connect.DefaultURL + `), or by a context of the nats command that WEIR_NATS_CONTEXT names. "weir help environment"
describes how to sign in. Commands print data on stdout and everything else on stderr.

Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 not found or empty, 4 refused, 5 the server cannot be reached.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	addVersionFlag(root)
	root.SetFlagErrorFunc(wrongFlag)
	dead, configure := letters.Command(), configuration.Command()
	dead.RunE, configure.RunE = group, group
	root.AddCommand(demoCommand(), serveCommand(), statusCommand(), topCommand(), submission.Command(), keysCommand(),
		showCommand(), jobsCommand(), jobCommand(), pauseCommand(), resumeCommand(), cancelCommand(), dead, resultsCommand(),
		eventsCommand(), notifyCommand(), configure, spendCommand(), verifyCommand(), plans.Command(), monitoringCommand(),
		doctorCommand(), healthCommand(), benchCommand(), moveCommand(), sharesCommand(), versionCommand(), fakeAPICommand(),
		natsServerCommand())
	addHelp(root)
	addCompletion(root)
	return root
}

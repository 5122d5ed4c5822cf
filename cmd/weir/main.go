// Command weir calls paid APIs for other programs: never faster than any limit, never twice, and never losing a job.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"weir/cmd/weir/internal/config"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnreachable = 5
)

// exit is an error with the code the process ends with. A command that has said all there is to say gives no text.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

func usage(err error) error       { return &exit{exitUsage, err} }
func notFound(err error) error    { return &exit{exitNotFound, err} }
func refused(err error) error     { return &exit{exitRefused, err} }
func unreachable(err error) error { return &exit{exitUnreachable, err} }

// classify gives a configuration's errors their exit code.
func classify(err error) error {
	var wrong *config.Errors
	if errors.As(err, &wrong) || errors.Is(err, errNoConfig) {
		return usage(err)
	}
	return err
}

func main() { os.Exit(run(context.Background(), os.Args[1:])) }

// run is main with its exit code as a value.
func run(ctx context.Context, args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	started := false
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(os.Stderr, "weir: "+text)
	}
	var e *exit
	if errors.As(err, &e) {
		return e.code
	}
	if !started {
		return exitUsage // cobra found no such command, or did not like its arguments
	}
	return exitFailed
}

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Call paid APIs never too fast, never too often, never twice",
		Long: `weir takes jobs for paid APIs from NATS, queues them, and makes the calls: never too fast, never too often, never twice.

Commands that look at a running weir find its NATS server by WEIR_NATS_URL (default ` + defaultNATSURL + `),
with WEIR_NATS_CREDS and WEIR_NATS_CA where it asks for them. Data goes to stdout, all else to stderr.

Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 not found or empty, 4 refused, 5 the server cannot be reached.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	root.AddCommand(demoCommand(), serveCommand(), submitCommand(), keysCommand(), showCommand(),
		pauseCommand(), resumeCommand(), cancelCommand(), deadCommand(), configCommand(), verifyCommand(), moveCommand(),
		versionCommand(), fakeAPICommand(), natsServerCommand())
	addHelp(root)
	return root
}

// version is the version this binary was built from, without a leading v: "0.0.0-dev" outside a release.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && len(info.Main.Version) > 1 && info.Main.Version[0] == 'v' {
		return info.Main.Version[1:]
	}
	return "0.0.0-dev"
}

package commands

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/letters"
	"weir/deadletter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func deadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at the dead letters, redrive, purge or export them",
		Long: `Looks at the dead letters, redrives, purges or exports them: jobs that will not be called again unless somebody redrives
them. They are read straight from the stream WEIR_DEAD, whether or not a weir runs; a redrive needs one.`,
		Example: "  weir dead ls --api credit-check --since 2h\n  weir dead show 17\n  weir dead redrive --reason overflow --dry-run",
		RunE:    group,
	}
	cmd.AddCommand(deadListCommand(), deadShowCommand(), deadStatsCommand(), deadTailCommand(), deadRedriveCommand(), deadEditCommand(), deadReconcileCommand(),
		deadPurgeCommand(), deadExportCommand(), deadImportCommand(), deadTasksCommand(), deadTaskCommand(), deadStopCommand(), deadResumeCommand())
	return cmd
}

// group is the action of a command that only has subcommands.
func group(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return wrongCommand(cmd, args[0])
	}
	return cmd.Help()
}

// letterFlags are the flags that select letters.
type letterFlags struct{ api, key, reason, since, until, status, job string }

func (f *letterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.api, "api", "", "only of this api; _ for jobs of unknown apis")
	flags.StringVar(&f.key, "key", "", "only of this key")
	flags.StringVar(&f.reason, "reason", "", "only with this reason: "+letters.ReasonNames())
	flags.StringVar(&f.since, "since", "", "only from this RFC 3339 time on, or from this long ago, as in 2h or 1d")
	flags.StringVar(&f.until, "until", "", "only before this time, or until this long ago")
	flags.StringVar(&f.status, "status", "", "only with this last answer, as in 503 or 5xx; 0 for none")
}

func (f *letterFlags) choice() *letters.Choice {
	return &letters.Choice{API: f.api, Key: f.key, Reason: f.reason, Since: f.since, Until: f.until, Status: f.status, Job: f.job}
}

// filter reads the flags.
func (f *letterFlags) filter(now time.Time) (deadletter.Filter, error) {
	filter, err := f.choice().Filter(now)
	if err != nil {
		return filter, cli.Usage(fmt.Errorf("--%w", err))
	}
	return filter, nil
}

// selection reads the flags, or the numbers of letters given in their place.
func (f *letterFlags) selection(args []string, now time.Time) (deadletter.Selection, error) {
	if len(args) == 0 {
		filter, err := f.filter(now)
		return deadletter.Selection{Filter: filter}, err
	}
	if *f != (letterFlags{}) {
		return deadletter.Selection{}, cli.Usage(errors.New("name letters by their numbers or choose them by flags, not both"))
	}
	var s deadletter.Selection
	for _, arg := range args {
		seq, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || seq == 0 {
			return s, cli.Usage(fmt.Errorf("%q is not the number of a dead letter; `weir dead ls` lists them", arg))
		}
		s.Seqs = append(s.Seqs, seq)
	}
	return s, nil
}

// String describes the selected letters, for the notification.
func (f *letterFlags) String() string { return f.choice().String() }

// scopeOf bounds a selection by the letters that exist now.
func scopeOf(ctx context.Context, c *connect.Connection, b *deadletter.Browser, s deadletter.Selection) (*deadletter.Scope, error) {
	scope, err := b.Scope(ctx, s)
	var missing *deadletter.MissingError
	if errors.As(err, &missing) {
		return nil, cli.NotFound(err)
	}
	return scope, c.Explain(err)
}

// browse opens the letters.
func browse(ctx context.Context, c *connect.Connection) (*deadletter.Browser, error) {
	b, err := deadletter.OpenBrowser(ctx, c.JetStream)
	if errors.Is(err, deadletter.ErrNoStream) {
		return nil, cli.NotFound(err)
	}
	return b, c.Explain(err)
}

// withLetters opens the letters for a command that may take long: a signal ends its context.
func withLetters(cmd *cobra.Command, do func(ctx context.Context, c *connect.Connection, b *deadletter.Browser) error) error {
	return connect.With(func(c *connect.Connection) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		b, err := browse(ctx, c)
		if err != nil {
			return err
		}
		return do(ctx, c, b)
	})
}

// letterRow returns a letter as one row of a table.
func letterRow(k *deadletter.Kept, when string) []string {
	status := "-"
	if k.Status > 0 {
		status = strconv.Itoa(k.Status)
	}
	return []string{strconv.FormatUint(k.Seq, 10), when, orDash(k.API), orDash(k.Key), string(k.Reason), status, string(k.Billed), k.Detail}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Package letters has the commands of weir dead. Each has a file with its flags, its help and its output.
package letters

import (
	"cmp"
	"context"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns the command dead with its subcommands.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead",
		Short: "Look at the dead letters, redrive, purge or export them",
		Long: `Looks at the dead letters, redrives, purges or exports them. A dead letter is a job that weir will not call
again unless an operator redrives it. The commands read letters directly from the stream WEIR_DEAD, whether or not a
weir runs; only a redrive needs a running weir.`,
		Example: "  weir dead ls --api credit-check --since 2h\n  weir dead show 17\n  weir dead redrive --reason overflow --dry-run",
	}
	cmd.AddCommand(deadListCommand(), deadShowCommand(), deadStatsCommand(), deadTailCommand(), deadRedriveCommand(), deadEditCommand(), deadReconcileCommand(),
		deadPurgeCommand(), deadExportCommand(), deadImportCommand(), deadTasksCommand(), deadTaskCommand(), deadStopCommand(), deadResumeCommand())
	return cmd
}

// letterFlags are the flags that select letters.
type letterFlags struct{ api, key, reason, since, until, status, job string }

func (f *letterFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.api, "api", "", "only letters of this api; _ for jobs of unknown apis")
	flags.StringVar(&f.key, "key", "", "only letters of this key")
	flags.StringVar(&f.reason, "reason", "", "only letters with this reason: "+deadview.ReasonNames())
	flags.StringVar(&f.since, "since", "", "only from this RFC 3339 time on, or from this long ago, such as 2h or 1d")
	flags.StringVar(&f.until, "until", "", "only before this time, or until this long ago")
	flags.StringVar(&f.status, "status", "", "only letters with this last answer, such as 503 or 5xx; 0 for none")
}

func (f *letterFlags) choice() *deadview.Choice {
	return &deadview.Choice{API: f.api, Key: f.key, Reason: f.reason, Since: f.since, Until: f.until, Status: f.status, Job: f.job}
}

// filter returns the filter that the flags describe.
func (f *letterFlags) filter(now time.Time) (deadletter.Filter, error) {
	filter, err := f.choice().Filter(now)
	if err != nil {
		return filter, cli.Usage(fmt.Errorf("--%w", err))
	}
	return filter, nil
}

// selection returns the selection that the flags describe. If args has numbers of letters, it returns the selection of
// these letters.
func (f *letterFlags) selection(args []string, now time.Time) (chosen deadview.Selection, err error) {
	var seqs []uint64
	for _, arg := range args {
		seq, err := deadview.ParseSeq(arg)
		if err != nil {
			return chosen, err
		}
		seqs = append(seqs, seq)
	}
	chosen, err = f.choice().Select(seqs, now)
	switch {
	case err != nil && len(seqs) == 0:
		return chosen, cli.Usage(fmt.Errorf("--%w", err))
	case err != nil:
		return chosen, cli.Usage(err)
	}
	return chosen, nil
}

// withLetters opens the letters for a command that may take long. A signal ends the context that do gets.
func withLetters(cmd *cobra.Command, do func(ctx context.Context, c *connect.Connection, store *deadview.Store) error) error {
	return connect.With(func(c *connect.Connection) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		store, err := deadview.Open(ctx, c)
		if err != nil {
			return err
		}
		return do(ctx, c, store)
	})
}

// letterRow returns the cells of a letter's row.
func letterRow(k *deadletter.Kept, when string) []string {
	status := "-"
	if k.Status > 0 {
		status = strconv.Itoa(k.Status)
	}
	return []string{strconv.FormatUint(k.Seq, 10), when, cmp.Or(k.API, "-"), cmp.Or(k.Key, "-"), string(k.Reason), status, string(k.Billed), k.Detail}
}

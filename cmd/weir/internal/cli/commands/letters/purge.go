package letters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"

	"github.com/spf13/cobra"
)

// purgeFlags are the flags of a purge.
type purgeFlags struct{ letterOperation }

func deadPurgeCommand() *cobra.Command {
	f := purgeFlags{}
	cmd := &cobra.Command{
		Use:   "purge [SEQ...]",
		Short: "Delete dead letters for good",
		Long: `Deletes dead letters for good: their jobs can never be redriven. Letters that arrive meanwhile stay. --dry-run
says how many letters match; ` + "`weir dead export`" + ` keeps a copy. Without --yes the command asks; without a
terminal it does nothing then, and exits with 4.`,
		Example: `  weir dead purge --reason invalid --until 7d --dry-run
  weir dead purge --api credit-check --reason rejected --status 4xx --yes
  weir dead purge 17 18 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.on(cmd, args, func(ctx context.Context, _ *connect.Connection, store *deadview.Store) error {
				return f.purge(ctx, cmd, store)
			})
		},
	}
	f.addTo(cmd, "", "letters per duration, such as 500/s (default as fast as the server can)", "only report what would be deleted")
	return cmd
}

// purge counts the letters, asks for confirmation, deletes them, and reports the outcome.
func (f *purgeFlags) purge(ctx context.Context, cmd *cobra.Command, store *deadview.Store) error {
	p, err := store.PlanPurge(ctx, f.chosen, f.every)
	if err != nil {
		return err
	}
	if f.dryRun {
		return f.print(cmd, p)
	}
	if err := f.confirm.Insist(cmd, fmt.Sprintf("Delete %s for good?", cli.Count(p.Letters, "letter"))); err != nil {
		return err
	}
	bar := cli.NewProgressBar(cmd.ErrOrStderr(), "purged", p.Letters)
	err = p.Run(ctx, cli.User(), bar.Show, func(err error) { _, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %v\n", err) })
	bar.Clear()
	if p.DryRun {
		return err // nothing was begun
	}
	return errors.Join(f.print(cmd, p), err)
}

func (f *purgeFlags) print(cmd *cobra.Command, p *deadview.Purge) error {
	if f.as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), p)
	}
	t := &cli.Table{}
	t.Row("letters", fmt.Sprintf("%d, the oldest %s old", p.Letters, cli.Brief(time.Since(*p.Oldest))))
	t.Row("bodies", cli.Count(p.Bytes, "byte"))
	t.Row("billed", fmt.Sprintf("%d, and %d that may have been", p.Billed, p.MaybeBilled))
	if p.DryRun {
		t.Row("cost", p.Cost+": nothing is called")
		t.Row("duration", cli.Brief(time.Duration(p.DurationMS)*time.Millisecond))
	} else {
		t.Row("purged", fmt.Sprint(p.Purged))
	}
	return t.Print(cmd.OutOrStdout())
}

package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/letters"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// purgeFlags are the flags of a purge.
type purgeFlags struct{ letterOperation }

func deadPurgeCommand() *cobra.Command {
	f := purgeFlags{}
	cmd := &cobra.Command{
		Use:   "purge [SEQ...]",
		Short: "Delete dead letters for good",
		Long: `Deletes dead letters for good: their jobs will never be called, and nobody can redrive them. Letters that come while it
works stay. --dry-run says how many there are; ` + "`weir dead export`" + ` keeps a copy. Without --yes it asks; where nobody is there
to answer it does nothing, and ends with 4.`,
		Example: `  weir dead purge --reason invalid --until 7d --dry-run
  weir dead purge --api credit-check --reason rejected --status 4xx --yes
  weir dead purge 17 18 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.on(cmd, args, func(ctx context.Context, c *connect.Connection, b *deadletter.Browser) error {
				scope, err := scopeOf(ctx, c, b, f.chosen)
				if err != nil {
					return err
				}
				return f.purge(ctx, cmd, c, scope)
			})
		},
	}
	f.addTo(cmd, "", "letters per duration, as in 500/s (default as fast as the server can)", "only say what would be deleted")
	return cmd
}

// purge counts, asks for confirmation, deletes, and reports.
func (f *purgeFlags) purge(ctx context.Context, cmd *cobra.Command, c *connect.Connection, scope *deadletter.Scope) error {
	found, err := scope.Contents(ctx)
	if err != nil {
		return c.Explain(err)
	}
	if found.Letters == 0 {
		return cli.NotFound(noLetters(f.chosen.Filter))
	}
	told := letters.PurgeOf(found, f.every)
	if f.dryRun {
		told.DryRun = true
		return f.print(cmd, told)
	}
	if err := f.confirm.Insist(cmd, fmt.Sprintf("Delete %s for good?", cli.Count(found.Letters, "letter"))); err != nil {
		return err
	}
	right, err := takeLetterRight(ctx, c)
	if err != nil {
		return err
	}
	defer right.Give()
	bar := cli.NewProgressBar(cmd.ErrOrStderr(), "purged", found.Letters)
	told.Purged, err = scope.Purge(ctx, deadletter.PurgeOptions{Rate: f.every, Valid: right.Valid, Told: bar.Show})
	bar.Clear()
	return errors.Join(f.finish(cmd, c, told), c.Explain(err))
}

// finish reports what was purged, on the terminal and as an event.
func (f *purgeFlags) finish(cmd *cobra.Command, c *connect.Connection, told *letters.Purge) error {
	if told.Purged > 0 {
		about := letters.Operation{Who: cli.User(), API: f.api, Key: f.key, Selection: f.said()}
		if err := about.TellPurged(context.WithoutCancel(cmd.Context()), c, told.Purged); err != nil {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: purged, but the notification could not be stored: %v\n", err)
		}
	}
	return f.print(cmd, told)
}

func (f *purgeFlags) print(cmd *cobra.Command, told *letters.Purge) error {
	if f.as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), told)
	}
	t := &cli.Table{}
	t.Row("letters", fmt.Sprintf("%d, the oldest %s old", told.Letters, cli.Brief(time.Since(*told.Oldest))))
	t.Row("bodies", cli.Count(told.Bytes, "byte"))
	t.Row("billed", fmt.Sprintf("%d, and %d that may have been", told.Billed, told.MaybeBilled))
	if told.DryRun {
		t.Row("cost", told.Cost+": nothing is called")
		t.Row("duration", cli.Brief(time.Duration(told.DurationMS)*time.Millisecond))
	} else {
		t.Row("purged", fmt.Sprint(told.Purged))
	}
	return t.Print(cmd.OutOrStdout())
}

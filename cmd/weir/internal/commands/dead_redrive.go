package commands

import (
	"context"
	"errors"
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/worker"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// redriveFlags are the flags of a redrive.
type redriveFlags struct {
	letterOperation

	includeUnknown bool
	dropDeadline   bool
	name           string
	detach         bool
	edit           *deadletter.Edit        // of the one named letter; nil: none
	planned        map[deadletter.Skip]int // the letters to leave alone, once the plan was printed
}

func deadRedriveCommand() *cobra.Command {
	f := redriveFlags{}
	cmd := &cobra.Command{
		Use:   "redrive [SEQ...]",
		Short: "Hand dead letters in again",
		Long: `Hands the jobs of dead letters in again, as if their producers had sent them once more: they wait in the buckets of their keys, go
at their rates, and may overflow again. Those of a key go in their order. A letter is deleted once the queue has taken its
job. One that is refused again leaves a new letter in place of the old one.

A job keeps its id, and so its idempotency key; headers and body are as its producer sent them. Letters that come after the plan
are not part of it.

A replica of weir works the redrive, and this command follows it: interrupted, it leaves the redrive going on. dead tasks lists the
redrives, dead task shows one, dead stop and dead resume stop it and have it go on. One redrive runs at a time, and others wait.
Whatever is killed, what was redriven before is recognised, by the queue, the letters and the ledger.

Left alone are letters 'unknown', whose call may have been processed (--include-unknown redrives them, and the api may bill
them twice; dead reconcile asks the api first); letters 'cancelled', unless they are named by --reason cancelled or their numbers;
letters whose deadline has passed (--drop-deadline); those whose producer has sent the same job again since; and those whose body
was too large to keep.

--dry-run says what it would do: how many, what they cost by the api's price, how long their buckets and the shared limits
need, how many should overflow at this rate, and the rate at which none should. Without --yes it asks; where nobody is there to answer it does nothing.

Exit code 4: nothing was done without --yes, nothing could be redriven, or some were refused again. 3: nothing matches. 5: it
waits, and no replica works it so far.`,
		Example: `  weir dead redrive --api credit-check --reason overflow --since 2h --dry-run
  weir dead redrive --api credit-check --reason overflow --since 2h --rate 20/s --yes
  weir dead redrive 17 18`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.on(cmd, args, func(ctx context.Context, c *connect.Connection, store *deadview.Store) error {
				return f.redrive(ctx, cmd, c, store)
			})
		},
	}
	f.addTo(cmd, deadview.UsualRate, "letters per duration, as in 20/s or 500/h; their buckets bound the calls in any case", "only say what would be done")
	cmd.Flags().BoolVar(&f.includeUnknown, "include-unknown", false, "also letters whose call may have been processed: the api may bill them twice")
	cmd.Flags().StringVar(&f.name, "name", "", "the redrive's name (default one that says when it was begun)")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "do not wait for its end: print its name")
	cmd.Flags().BoolVar(&f.dropDeadline, "drop-deadline", false, "forget the jobs' deadlines")
	return cmd
}

// redrive counts, asks for confirmation, has a replica redrive, follows that and reports.
func (f *redriveFlags) redrive(ctx context.Context, cmd *cobra.Command, c *connect.Connection, store *deadview.Store) error {
	current, ok := control.RunningConfig(ctx, c)
	if !ok {
		return cli.NotFound(errors.New("the running configuration cannot be read: it says where jobs go and what they cost"))
	}
	p, err := store.PlanRedrive(ctx, deadview.Redrive{
		Letters: f.chosen, Rate: *f.every, IncludeUnknown: f.includeUnknown, DropDeadline: f.dropDeadline, Edit: f.edit, By: cli.User(), Name: f.name,
	}, worker.RedriveTerms(current))
	if err != nil {
		return err
	}
	only := f.dryRun || !f.confirm.Possible(cmd) // the plan is all that is printed
	if !only && p.Letters+p.Settled == 0 {
		return f.tell(cmd, &deadletter.Tally{Skipped: p.Skipped}) // which says the same as the plan
	}
	if err := f.printPlan(cmd, p, only); err != nil || f.dryRun {
		return err
	}
	if p.Letters+p.Settled == 0 {
		return deadview.NoneRedriven(p.Skipped)
	}
	if err := f.confirm.Insist(cmd, fmt.Sprintf("Redrive %s, for %s?", cli.Count(p.Letters, "letter"), config.Money(p.Cost))); err != nil {
		return err
	}
	task, err := p.Start(ctx)
	switch {
	case err != nil:
		return err
	case f.detach && f.as == cli.AsJSON:
		return cli.PrintJSON(cmd.OutOrStdout(), deadview.TellTask(&task))
	case f.detach:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), task.Name)
		return err
	}
	tasks, err := deadview.OpenTasks(ctx, c)
	if err != nil {
		return err
	}
	return f.followTask(ctx, cmd, tasks, task)
}

// tell reports the outcome of the redrive.
func (f *redriveFlags) tell(cmd *cobra.Command, t *deadletter.Tally) error {
	if err := f.printTally(cmd.OutOrStdout(), t); err != nil {
		return err
	}
	switch {
	case t.Left > 0:
		return fmt.Errorf("%s could not be deleted though the job has gone on: the next redrive recognises that", cli.Count(t.Left, "letter"))
	case t.Overflowed+t.Refused > 0:
		return cli.Refused(fmt.Errorf("of %s %d overflowed again and %d were refused otherwise; each is a new letter",
			cli.Count(t.Redriven+t.Known+t.Overflowed+t.Refused, "letter"), t.Overflowed, t.Refused))
	case t.Redriven+t.Known+t.Settled == 0:
		return deadview.NoneRedriven(t.Skipped)
	}
	return nil
}

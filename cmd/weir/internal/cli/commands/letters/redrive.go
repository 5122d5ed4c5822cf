package letters

import (
	"context"
	"errors"
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/worker"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// redriveFlags are the flags of a redrive.
type redriveFlags struct {
	letterOperation

	includeUnknown bool
	dropDeadline   bool
	priority       string
	name           string
	detach         bool
	edit           *deadletter.Edit        // the edit of the only letter; nil: no edit
	planned        map[deadletter.Skip]int // once the plan was printed: the letters that it says are left alone
}

func deadRedriveCommand() *cobra.Command {
	f := redriveFlags{}
	cmd := &cobra.Command{
		Use:   "redrive [SEQ...]",
		Short: "Submit the jobs of dead letters again",
		Long: `Submits the jobs of dead letters again, as if their producers had. They wait in the buckets of their keys, are
called at their rates, and may overflow again. Those of one key go in their order. A letter is deleted once the queue
has accepted its job. If the job is refused again, a new letter replaces the old one.

A job keeps its id, and so its idempotency key, and its headers and body. Its priority becomes low, so that jobs that
come pass it; --priority says otherwise. Letters that arrive after the plan are not part of the redrive.

A replica of weir runs the redrive, and this command follows it. If you interrupt the command, the redrive goes on. dead
tasks lists the redrives, dead task shows one, dead stop and dead resume stop and continue it. One redrive runs at a
time, and others wait. After any kill weir recognizes what was redriven before, from the queue, the letters and the
ledger.

A redrive leaves alone: letters 'unknown', whose call may have been processed (--include-unknown redrives them, and the
api may bill them twice; dead reconcile asks the api first); letters 'cancelled', unless --reason cancelled or their
numbers name them; letters whose deadline has passed (--drop-deadline); letters whose producer has submitted the same
job again since; and letters whose body was too large to keep.

--dry-run reports the plan: how many letters, what they cost by the api's price, how long their buckets and the shared
limits need, how many would overflow at this rate, and the rate at which none would. Without --yes the command asks
first; without a terminal it does nothing then.

Exit code 4: nothing was done without --yes, nothing could be redriven, or some jobs were refused again. 3: no letter
matches. 5: the redrive waits, and no replica runs it so far.`,
		Example: `  weir dead redrive --api credit-check --reason overflow --since 2h --dry-run
  weir dead redrive --api credit-check --reason overflow --since 2h --rate 20/s --yes
  weir dead redrive 17 18`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.rate == "" {
				return cli.Usage(errors.New("--rate is empty: write letters per duration, such as 20/s, or leave the flag out"))
			}
			return f.on(cmd, args, func(ctx context.Context, c *connect.Connection, store *deadview.Store) error {
				return f.redrive(ctx, cmd, c, store)
			})
		},
	}
	f.addTo(cmd, deadview.UsualRate, "letters per duration, such as 20/s or 500/h; their buckets limit the calls in any case", "only report what would be done")
	cmd.Flags().BoolVar(&f.includeUnknown, "include-unknown", false, "also letters whose call may have been processed: the api may bill them twice")
	cmd.Flags().StringVar(&f.name, "name", "", "the redrive's name (default: one with its start time)")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "do not wait for its end; print its name")
	cmd.Flags().BoolVar(&f.dropDeadline, "drop-deadline", false, "remove the jobs' deadlines")
	f.addPriority(cmd)
	return cmd
}

// addPriority adds the flag --priority, which sets the priority of redriven jobs.
func (f *redriveFlags) addPriority(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.priority, "priority", deadletter.RedrivePriority.String(), "the jobs' priority from now on: high, normal or low")
}

// redrive plans the redrive and asks for confirmation. It then starts the redrive, which a replica runs, follows it,
// and reports the outcome.
func (f *redriveFlags) redrive(ctx context.Context, cmd *cobra.Command, c *connect.Connection, store *deadview.Store) error {
	current, ok := admin.RunningConfig(ctx, c)
	if !ok {
		return cli.NotFound(errors.New("the running configuration cannot be read: it says where jobs go and what they cost"))
	}
	p, err := store.PlanRedrive(ctx, deadview.Redrive{
		Letters: f.chosen, Rate: *f.every, IncludeUnknown: f.includeUnknown, DropDeadline: f.dropDeadline, Priority: f.priority,
		Edit: f.edit, By: cli.User(), Name: f.name,
	}, worker.RedriveTerms(current))
	if err != nil {
		return err
	}
	only := f.dryRun || !f.confirm.Possible(cmd) // only the plan is printed
	if !only && p.Letters+p.Settled == 0 {
		return f.tell(cmd, &deadletter.Tally{Skipped: p.Skipped}) // the tally says the same as the plan would
	}
	if err := f.printPlan(cmd, p, only); err != nil || f.dryRun {
		return err
	}
	if p.Letters+p.Settled == 0 {
		return deadview.NoneRedriven(p.Skipped)
	}
	if err := f.confirm.Insist(cmd, fmt.Sprintf("Redrive %s, for %s?", cli.Count(p.Letters, "letter"), grammar.Money(p.Cost))); err != nil {
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

// tell prints the outcome of the redrive. It returns an error with an exit code if not all went well.
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

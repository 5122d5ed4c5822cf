package commands

import (
	"context"
	"errors"
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/worker"
	"weir/deadletter"
	"weir/dispatcher/ledger"

	"github.com/spf13/cobra"
)

// redriveFlags are the flags of a redrive.
type redriveFlags struct {
	letterOperation

	includeUnknown bool
	dropDeadline   bool
	name           string
	detach         bool
	here           bool
	edit           *deadletter.Edit // of the one named letter; nil: none
	bar            *cli.ProgressBar
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
redrives, dead task shows one, dead stop and dead resume stop it and have it go on. Whatever is killed, what was redriven before is
recognised, by the queue, the letters and the ledger. With --here the command does it itself: where no replica works redrives.

Left alone are letters 'unknown', whose call may have been processed (--include-unknown redrives them, and the api may bill
them twice; dead reconcile asks the api first); letters 'cancelled', unless they are named by --reason cancelled or their numbers;
letters whose deadline has passed (--drop-deadline); those whose producer has sent the same job again since; and those whose body
was too large to keep.

--dry-run says what it would do: how many, what they cost by the api's price, how long their buckets and the shared limits
need, how many should overflow at this rate, and the rate at which none should. Without --yes it asks; where nobody is there to answer it does nothing.

Exit code 4: nothing was done without --yes, nothing could be redriven, or some were refused again. 3: nothing matches.`,
		Example: `  weir dead redrive --api credit-check --reason overflow --since 2h --dry-run
  weir dead redrive --api credit-check --reason overflow --since 2h --rate 20/s --yes
  weir dead redrive 17 18`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.on(cmd, args, func(ctx context.Context, c *connect.Connection, b *deadletter.Browser) error {
				return f.redrive(ctx, cmd, c, b)
			})
		},
	}
	f.addTo(cmd, "100/s", "letters per duration, as in 20/s or 500/h; their buckets bound the calls in any case", "only say what would be done")
	cmd.Flags().BoolVar(&f.includeUnknown, "include-unknown", false, "also letters whose call may have been processed: the api may bill them twice")
	cmd.Flags().StringVar(&f.name, "name", "", "the redrive's name (default one that says when it was begun)")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "do not wait for its end: print its name")
	cmd.Flags().BoolVar(&f.here, "here", false, "redrive in this process and not in a replica: it ends when the command is interrupted")
	cmd.MarkFlagsMutuallyExclusive("here", "detach")
	cmd.MarkFlagsMutuallyExclusive("here", "name")
	cmd.Flags().BoolVar(&f.dropDeadline, "drop-deadline", false, "forget the jobs' deadlines")
	return cmd
}

// redrive counts, asks for confirmation, publishes, and reports.
func (f *redriveFlags) redrive(ctx context.Context, cmd *cobra.Command, c *connect.Connection, b *deadletter.Browser) error {
	if f.dryRun || !f.confirm.Possible(cmd) {
		askedFor := f.dryRun
		f.dryRun = askedFor || f.as == cli.AsJSON // the plan is the whole output
		_, plan, err := f.plan(ctx, cmd, c, b, nil)
		if err != nil || askedFor {
			return err
		}
		if plan.Letters+plan.Settled == 0 {
			return noneRedriven(plan.Skipped)
		}
		return f.confirm.Insist(cmd, f.question(plan))
	}
	right, err := takeLetterRight(ctx, c)
	if err != nil {
		return err
	}
	defer right.Give()
	r, plan, err := f.plan(ctx, cmd, c, b, right)
	if err != nil {
		return err
	}
	if plan.Letters+plan.Settled == 0 {
		return f.tell(cmd, c, &deadletter.Tally{Skipped: plan.Skipped}, nil)
	}
	if err := f.confirm.Insist(cmd, f.question(plan)); err != nil {
		return err
	}
	switch {
	case f.here:
	case control.RedrivesWorked(c):
		right.Give()
		return f.start(ctx, cmd, c, r, plan)
	default:
		return cli.Unreachable(fmt.Errorf("no weir at %s works redrives: start `weir serve` with the role dispatch, or redrive in this process with --here", c.At))
	}
	tally, err := r.Run(ctx)
	f.bar.Clear()
	f.notify(cmd, c, tally)
	return f.tell(cmd, c, tally, err)
}

func (f *redriveFlags) question(p *deadletter.Plan) string {
	return fmt.Sprintf("Redrive %s, for %s?", cli.Count(p.Letters, "letter"), config.Money(p.Cost))
}

// plan finds what to redrive, and prints it.
func (f *redriveFlags) plan(ctx context.Context, cmd *cobra.Command, c *connect.Connection, b *deadletter.Browser, right *deadletter.Right) (*deadletter.Redrive, *deadletter.Plan, error) {
	current, ok := control.RunningConfig(ctx, c)
	if !ok {
		return nil, nil, cli.NotFound(errors.New("the running configuration cannot be read: it says where jobs go and what they cost"))
	}
	scope, err := scopeOf(ctx, c, b, f.chosen)
	if err != nil {
		return nil, nil, err
	}
	if err := f.fits(ctx, c, b, current); err != nil {
		return nil, nil, err
	}
	f.bar = cli.NewProgressBar(cmd.ErrOrStderr(), "redriven", 0)
	o := deadletter.RedriveOptions{
		Conn: c.Conn, Browser: b, Terms: worker.RedriveTerms(current), Calls: tracesOf(c), Rate: *f.every, Edit: f.edit,
		Valid: func() bool { return right != nil && right.Valid() },
		Told:  func(t *deadletter.Tally) { f.bar.Show(t.Done()) },
	}
	if f.includeUnknown {
		o.Unknown = deadletter.IncludeUnknowns
	}
	if f.reason == string(deadletter.Cancelled) || len(f.chosen.Seqs) > 0 {
		o.Cancelled = deadletter.IncludeCancelleds
	}
	if f.dropDeadline {
		o.Deadline = deadletter.DropDeadline
	}
	r := deadletter.NewRedrive(scope, o)
	plan, err := r.Plan(ctx)
	if err != nil {
		return nil, nil, c.Explain(err)
	}
	if !plan.Found() {
		return nil, nil, cli.NotFound(noLetters(f.chosen.Filter))
	}
	f.bar.SetTotal(plan.Letters + plan.Settled)
	if plan.Letters+plan.Settled == 0 && !f.dryRun {
		return r, plan, nil // the tally says the same
	}
	return r, plan, f.printPlan(cmd, plan)
}

// tracesOf returns a reader of calls in a server's ledger.
func tracesOf(c *connect.Connection) deadletter.CallsReader {
	return func(ctx context.Context, q deadletter.CallsQuery, take func(deadletter.Trace)) (uint64, error) {
		return ledger.ReadSince(ctx, c.JetStream, q, take)
	}
}

// tell reports the outcome of the redrive.
func (f *redriveFlags) tell(cmd *cobra.Command, c *connect.Connection, t *deadletter.Tally, failed error) error {
	if err := f.printTally(cmd.OutOrStdout(), t); err != nil {
		return err
	}
	switch {
	case errors.Is(failed, deadletter.ErrNobody):
		return cli.Unreachable(fmt.Errorf("nobody takes redrives at %s: start `weir serve` with the role ingest; what was not redriven is still a letter", c.At))
	case errors.Is(failed, deadletter.ErrEdit):
		return cli.Refused(failed)
	case errors.Is(failed, deadletter.ErrUnanswered):
		return cli.Unreachable(failed)
	case errors.Is(failed, context.Canceled):
		return errors.New("stopped: what was not redriven is still a letter; start it again to go on")
	case failed != nil:
		return c.Explain(failed)
	case t.Left > 0:
		return fmt.Errorf("%s could not be deleted though the job has gone on: the next redrive recognises that", cli.Count(t.Left, "letter"))
	case t.Overflowed+t.Refused > 0:
		return cli.Refused(fmt.Errorf("of %s %d overflowed again and %d were refused otherwise; each is a new letter",
			cli.Count(t.Redriven+t.Known+t.Overflowed+t.Refused, "letter"), t.Overflowed, t.Refused))
	case t.Redriven+t.Known+t.Settled == 0:
		return noneRedriven(t.Skipped)
	}
	return nil
}

// notify publishes the event of a redrive that no replica has worked.
func (f *redriveFlags) notify(cmd *cobra.Command, c *connect.Connection, t *deadletter.Tally) {
	if t.Redriven+t.Known+t.Overflowed+t.Refused == 0 {
		return
	}
	e := deadletter.Event{Type: deadletter.RedrivenEvent, API: f.api, Key: f.key, Data: deadletter.OperationData{
		Who: cli.User(), Selection: f.said(), Letters: t.Redriven + t.Known, Overflowed: t.Overflowed, Refused: t.Refused,
	}}
	if err := e.Publish(context.WithoutCancel(cmd.Context()), c.JetStream); err != nil {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: redriven, but the notification could not be stored: %v\n", err)
	}
}

func noneRedriven(skipped map[deadletter.Skip]int) error {
	return cli.Refused(fmt.Errorf("none of these letters could be redriven: %s", skippedText(skipped)))
}

package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// waitsLong is how long to watch a task that waits for something.
const waitsLong = 10 * time.Second

// errWaitsLong reports that a task makes no progress.
var errWaitsLong = errors.New("it waits")

// start makes a replica redrive what was planned, and follows it to its end.
func (f *redriveFlags) start(ctx context.Context, cmd *cobra.Command, c *connect.Connection, r *deadletter.Redrive, plan *deadletter.Plan) error {
	tasks, err := tasksAt(ctx, c)
	if err != nil {
		return err
	}
	o := r.Order(control.RedriveOrder(plan, *f.every))
	o.Name, o.By, o.Said = f.name, cli.User(), f.said()
	task, err := tasks.Start(ctx, r.Scope(), o)
	if err != nil {
		return c.Explain(control.ExplainTask(f.name, err))
	}
	if f.detach {
		if f.as == cli.AsJSON {
			return cli.PrintJSON(cmd.OutOrStdout(), control.TellTask(&task))
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), task.Name)
		return err
	}
	return f.followTask(ctx, cmd, c, tasks, task)
}

// followTask shows a task's progress until it has ended, and reports the outcome.
func (f *redriveFlags) followTask(ctx context.Context, cmd *cobra.Command, c *connect.Connection, tasks *deadletter.Tasks, task deadletter.Task) error {
	if f.bar == nil {
		f.bar = cli.NewProgressBar(cmd.ErrOrStderr(), "redriven", 0)
	}
	f.bar.SetTotal(task.Total)
	err := awaitTask(ctx, tasks, &task, func(t *deadletter.Task) { f.bar.Show(t.Progress.Tally.Done()) })
	f.bar.Clear()
	talk := cmd.ErrOrStderr()
	switch {
	case errors.Is(err, errWaitsLong):
		_, _ = fmt.Fprintf(talk, "weir: the redrive %s waits, and goes on by itself: %s\n", task.Name, task.Progress.Why)
		_, _ = fmt.Fprintf(talk, "weir: `weir dead task %s` shows it, `weir dead stop %s` stops it\n", task.Name, task.Name)
		return cli.Unreachable(errors.New("it has not ended"))
	case ctx.Err() != nil:
		_, _ = fmt.Fprintf(talk, "weir: the redrive %s goes on without this command: `weir dead task %s` shows it, `weir dead stop %s` stops it\n", task.Name, task.Name, task.Name)
		return errors.New("interrupted before its end")
	case err != nil:
		return c.Explain(err)
	}
	did := task.Progress.Tally
	switch task.State() {
	case deadletter.TaskStopped:
		if err := f.printTally(cmd.OutOrStdout(), &did); err != nil {
			return err
		}
		return fmt.Errorf("stopped by %s: what was not redriven is still a letter; `weir dead resume %s` goes on", cli.Visible(task.StoppedBy), task.Name)
	case deadletter.TaskFailed:
		return f.tell(cmd, c, &did, fmt.Errorf("the redrive %s has failed, `weir dead resume %s` tries again: %s", task.Name, task.Name, task.Progress.Why))
	}
	return f.tell(cmd, c, &did, nil)
}

// awaitTask shows a task's progress until it has ended or has waited for long.
func awaitTask(ctx context.Context, tasks *deadletter.Tasks, task *deadletter.Task, show func(*deadletter.Task)) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(waitsLong, cancel)
	defer late.Stop()
	at, gone := task.Progress.Next, false
	err := tasks.Watch(watching, func(all []deadletter.Task) bool {
		gone = true
		for i := range all {
			if all[i].Name == task.Name {
				*task, gone = all[i], false
			}
		}
		if gone || task.State().Ended() && task.Resting() {
			return false
		}
		if task.Progress.Why == "" || task.Progress.Next != at {
			late.Stop()
		}
		if at = task.Progress.Next; task.Progress.Why != "" {
			late.Reset(waitsLong)
		}
		show(task)
		return true
	})
	switch {
	case gone:
		return fmt.Errorf("somebody has deleted the redrive %s", task.Name)
	case ctx.Err() == nil && watching.Err() != nil:
		return errWaitsLong
	}
	return err
}

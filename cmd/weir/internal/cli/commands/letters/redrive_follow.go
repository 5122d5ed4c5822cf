package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"
	"weir/ingest"

	"github.com/spf13/cobra"
)

// waitsLong is how long the command watches a task that makes no progress.
const waitsLong = 12 * time.Second

// errWaitsLong reports that a task makes no progress.
var errWaitsLong = errors.New("it waits")

// followTask shows a task's progress until the task has ended, and reports the outcome.
func (f *redriveFlags) followTask(ctx context.Context, cmd *cobra.Command, tasks *deadview.Tasks, task deadletter.Task) error {
	bar := cli.NewProgressBar(cmd.ErrOrStderr(), "redriven", task.Total)
	err := awaitTask(ctx, tasks.Watch, &task, func(t *deadletter.Task) { bar.Show(t.Progress.Tally.Done()) })
	bar.Clear()
	talk := cmd.ErrOrStderr()
	switch {
	case errors.Is(err, errWaitsLong):
		_, _ = fmt.Fprintf(talk, "weir: the redrive %s waits, and goes on by itself: %s\n", task.Name, cmp.Or(task.Progress.Why, noWorker))
		_, _ = fmt.Fprintf(talk, "weir: `weir dead task %s` shows it, `weir dead stop %s` stops it\n", task.Name, task.Name)
		return cli.Unreachable(errors.New("it has not ended"))
	case ctx.Err() != nil:
		_, _ = fmt.Fprintf(talk, "weir: the redrive %s goes on without this command: `weir dead task %s` shows it, `weir dead stop %s` stops it\n", task.Name, task.Name, task.Name)
		return errors.New("interrupted before its end")
	case err != nil:
		return err
	}
	did := task.Progress.Tally
	if task.State() == deadletter.TaskDone {
		return f.tell(cmd, &did)
	}
	if err := f.printTally(cmd.OutOrStdout(), &did); err != nil {
		return err
	}
	switch {
	case task.State() == deadletter.TaskStopped:
		return fmt.Errorf("stopped by %s: what was not redriven is still a letter; `weir dead resume %s` goes on", cli.Visible(task.StoppedBy), task.Name)
	case task.Edit != nil && did.Refused > 0:
		return cli.Refused(errors.New(task.Progress.Why))
	}
	return fmt.Errorf("the redrive %s has failed, `weir dead resume %s` tries again: %s", task.Name, task.Name, task.Progress.Why)
}

// noWorker says why a task may wait if the task itself names no reason.
const noWorker = "no replica works it so far; one with the role dispatch does, if its NATS user may publish to " + ingest.RedrivePrefix + ">, once no purge runs"

// watchTasks passes all tasks to take, now and after every change.
type watchTasks func(ctx context.Context, take func(all []deadletter.Task) (more bool)) error

// awaitTask shows a task's progress until the task has ended. It fails with errWaitsLong if the task has made no
// progress for waitsLong and no task runs. watch is Tasks.Watch. The first lists that watch passes may lack a task that
// was just stored, because they come from a replica of the bucket.
func awaitTask(ctx context.Context, watch watchTasks, task *deadletter.Task, show func(*deadletter.Task)) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(waitsLong, cancel)
	defer late.Stop()
	at, seen, gone := task.Progress.Next, false, false
	err := watch(watching, func(all []deadletter.Task) bool {
		there, works := false, false // works: any task runs
		for i := range all {
			works = works || all[i].State() == deadletter.TaskRunning
			if all[i].Name == task.Name {
				*task, there = all[i], true
			}
		}
		seen, gone = seen || there, seen && !there
		if gone || task.State().Ended() && task.Resting() {
			return false
		}
		if works || task.Progress.Next != at {
			late.Stop()
		}
		if at = task.Progress.Next; !works {
			late.Reset(waitsLong)
		}
		show(task)
		return true
	})
	switch {
	case gone:
		return fmt.Errorf("the redrive %s was deleted", task.Name)
	case ctx.Err() == nil && watching.Err() != nil:
		return errWaitsLong
	}
	return err
}

package letters

import (
	"context"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

func deadStopCommand() *cobra.Command {
	return changeTaskCommand("stop NAME", "Stop a redrive until it is resumed",
		"Stops a redrive until it is resumed, or for good. Jobs that it has submitted stay submitted; the other letters stay letters.",
		func(ctx context.Context, tasks *deadview.Tasks, name string) (deadletter.Task, error) {
			task, err := tasks.Stop(ctx, name, cli.User())
			if err != nil {
				return task, err
			}
			return task, awaitRest(ctx, tasks, &task)
		})
}

func deadResumeCommand() *cobra.Command {
	return changeTaskCommand("resume NAME", "Continue a redrive that was stopped or has failed",
		"Continues a redrive that was stopped or has failed, where it stopped and at its original rate.",
		func(ctx context.Context, tasks *deadview.Tasks, name string) (deadletter.Task, error) {
			return tasks.Resume(ctx, name)
		})
}

// restWait is the longest time until all outstanding messages of a stopped redrive have their answers.
const restWait = 35 * time.Second

// awaitRest blocks until no replica works on a stopped task, but for restWait at most. It also returns if the task has
// not changed for waitsLong, because the replica that worked on it may have died.
func awaitRest(ctx context.Context, tasks *deadview.Tasks, task *deadletter.Task) error {
	ctx, cancel := context.WithTimeout(ctx, restWait)
	defer cancel()
	updated := task.Progress.Updated
	silent := time.AfterFunc(waitsLong, cancel)
	defer silent.Stop()
	err := tasks.Watch(ctx, func(all []deadletter.Task) bool {
		for i := range all {
			if all[i].Name == task.Name {
				*task = all[i]
			}
		}
		if task.Progress.Updated != updated {
			updated = task.Progress.Updated
			silent.Reset(waitsLong)
		}
		return !task.Resting()
	})
	if ctx.Err() != nil {
		return nil // no replica works on the task, or the replica will see the stop
	}
	return err
}

func changeTaskCommand(use, short, long string, change func(context.Context, *deadview.Tasks, string) (deadletter.Task, error)) *cobra.Command {
	as := cli.Format("")
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cli.Takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTasks(cmd, func(ctx context.Context, tasks *deadview.Tasks) error {
				task, err := change(ctx, tasks, args[0])
				if err != nil {
					return err
				}
				return printTask(cmd, as, &task)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

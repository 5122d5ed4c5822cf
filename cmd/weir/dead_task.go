package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
)

// tasksAt finds the redrives of a server.
func tasksAt(ctx context.Context, c *connect.Connection) (*deadletter.Tasks, error) {
	kv, err := c.JetStream.KeyValue(ctx, connect.ControlBucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, cli.NotFound(fmt.Errorf("there is no key-value bucket %s: weir has not run on this server", connect.ControlBucket))
	} else if err != nil {
		return nil, c.Explain(err)
	}
	return deadletter.NewTasks(kv), nil
}

// start has a replica redrive what was planned, and follows it to its end.
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

// waitsLong is how long a task that waits for something is watched.
const waitsLong = 10 * time.Second

// errWaitsLong says that a task does not get on.
var errWaitsLong = errors.New("it waits")

// followTask shows how a task gets on, until it has ended, and tells what came of it.
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

// awaitTask waits until a task has ended, or waits for long, and shows how it gets on.
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

func deadTasksCommand() *cobra.Command {
	as := cli.Format("")
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List the redrives: those that run, wait or are stopped, and those that have ended",
		Long: `Lists the redrives, the newest last: those that run, wait or are stopped, and those that have ended, of which the last are
kept.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withTasks(cmd, func(ctx context.Context, c *connect.Connection, tasks *deadletter.Tasks) error {
				all, err := tasks.List(ctx)
				if err != nil {
					return c.Explain(err)
				}
				if len(all) == 0 {
					return cli.NotFound(errors.New("there are no redrives"))
				}
				return printTasks(cmd, as, all)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object for each")
	return cmd
}

// withTasks opens the redrives for a command.
func withTasks(cmd *cobra.Command, do func(ctx context.Context, c *connect.Connection, tasks *deadletter.Tasks) error) error {
	return connect.With(func(c *connect.Connection) error {
		tasks, err := tasksAt(cmd.Context(), c)
		if err != nil {
			return err
		}
		return do(cmd.Context(), c, tasks)
	})
}

func printTasks(cmd *cobra.Command, as cli.Format, all []deadletter.Task) error {
	t := &cli.Table{}
	t.Row("TASK", "STATE", "DONE", "OF", "OVERFLOWED", "RATE", "BEGUN", "BY", "SELECTION")
	for i := range all {
		told := control.TellTask(&all[i])
		if as == cli.AsJSON {
			if err := cli.PrintJSON(cmd.OutOrStdout(), told); err != nil {
				return err
			}
			continue
		}
		t.Row(told.Name, string(told.State), strconv.Itoa(told.Done), strconv.Itoa(told.Total), strconv.Itoa(told.Overflowed), told.Rate,
			cli.Brief(time.Since(told.Created))+" ago", told.By, orDash(told.Selection))
	}
	if as == cli.AsJSON {
		return nil
	}
	return t.Print(cmd.OutOrStdout())
}

func deadTaskCommand() *cobra.Command {
	f, follow := redriveFlags{}, false
	cmd := &cobra.Command{
		Use:   "task NAME",
		Short: "Show one redrive: how far it is, and what came of its letters",
		Long: `Shows one redrive: how far it is, and what came of its letters. With --follow it waits for the redrive's end, and ends as dead
redrive does.`,
		Args: cli.Takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withLetters(cmd, func(ctx context.Context, c *connect.Connection, _ *deadletter.Browser) error {
				tasks, err := tasksAt(ctx, c)
				if err != nil {
					return err
				}
				task, err := tasks.Get(ctx, args[0])
				if err != nil {
					return c.Explain(control.ExplainTask(args[0], err))
				}
				if follow {
					return f.followTask(ctx, cmd, c, tasks, task)
				}
				return printTask(cmd, f.as, &task)
			})
		},
	}
	f.as.Add(cmd.Flags(), "one JSON object")
	cmd.Flags().BoolVar(&follow, "follow", false, "wait for its end")
	return cmd
}

func printTask(cmd *cobra.Command, as cli.Format, task *deadletter.Task) error {
	told := control.TellTask(task)
	if as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), told)
	}
	t := &cli.Table{}
	t.Row("task", told.Name)
	state := string(told.State)
	if told.Why != "" {
		state += ": " + told.Why
	}
	if told.StoppedBy != "" {
		state += " by " + cli.Visible(told.StoppedBy)
	}
	t.Row("state", state)
	t.Row("begun", cli.Brief(time.Since(told.Created))+" ago by "+cli.Visible(told.By))
	if told.Worker != "" {
		t.Row("worker", cli.Visible(told.Worker))
	}
	t.Row("letters", strings.TrimSpace(fmt.Sprintf("%d of %d dealt with %s", told.Done, told.Total, selected(told.Selection))))
	rate := told.Rate
	if told.LeftMS > 0 {
		rate += ", at least " + cli.Brief(time.Duration(told.LeftMS)*time.Millisecond) + " left"
	}
	t.Row("rate", rate)
	addTally(t, &told.Tally, nil)
	if told.Gone > 0 {
		t.Row("gone", strconv.Itoa(told.Gone)+" when it came to them: ended by others, too old, or not counted before a replica died")
	}
	return t.Print(cmd.OutOrStdout())
}

func selected(selection string) string {
	if selection == "" {
		return ""
	}
	return "(" + cli.Visible(selection) + ")"
}

func deadStopCommand() *cobra.Command {
	return changeTaskCommand("stop NAME", "Have a redrive rest until it is resumed",
		"Has a redrive rest until it is resumed, or for good. What it has handed in stays so; what it has not come to are letters still.",
		func(ctx context.Context, tasks *deadletter.Tasks, name string) (deadletter.Task, error) {
			task, err := tasks.Stop(ctx, name, cli.User())
			if err != nil {
				return task, err
			}
			return task, awaitRest(ctx, tasks, &task)
		})
}

func deadResumeCommand() *cobra.Command {
	return changeTaskCommand("resume NAME", "Have a redrive go on that was stopped or has failed",
		"Has a redrive go on that was stopped or has failed, where it was, at the rate it was begun with.",
		func(ctx context.Context, tasks *deadletter.Tasks, name string) (deadletter.Task, error) {
			return tasks.Resume(ctx, name)
		})
}

// restWait is how long a stopped redrive may take until what it has on its way is answered.
const restWait = 35 * time.Second

// awaitRest waits until no replica works a task that was stopped. One that died working it is not waited for.
func awaitRest(ctx context.Context, tasks *deadletter.Tasks, task *deadletter.Task) error {
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
		return nil // nobody works it, or he hears of it
	}
	return err
}

func changeTaskCommand(use, short, long string, change func(context.Context, *deadletter.Tasks, string) (deadletter.Task, error)) *cobra.Command {
	as := cli.Format("")
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Args: cli.Takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTasks(cmd, func(ctx context.Context, c *connect.Connection, tasks *deadletter.Tasks) error {
				task, err := change(ctx, tasks, args[0])
				if err != nil {
					return c.Explain(control.ExplainTask(args[0], err))
				}
				return printTask(cmd, as, &task)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

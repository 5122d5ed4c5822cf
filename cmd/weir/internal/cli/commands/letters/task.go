package letters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

func deadTasksCommand() *cobra.Command {
	as := cli.Format("")
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "List the redrives that run, wait or are stopped, and the last that have ended",
		Long: `Lists the redrives, the newest last: those that run, wait or are stopped, and the last that have ended. weir
keeps 200 in all.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withTasks(cmd, func(ctx context.Context, tasks *deadview.Tasks) error {
				all, err := tasks.List(ctx)
				if err != nil {
					return err
				}
				if len(all) == 0 {
					return cli.NotFound(errors.New("there are no redrives"))
				}
				return printTasks(cmd, as, all)
			})
		},
	}
	as.Add(cmd.Flags(), "one JSON object per redrive")
	return cmd
}

// withTasks opens the redrives for a command. A signal ends the context that do gets.
func withTasks(cmd *cobra.Command, do func(ctx context.Context, tasks *deadview.Tasks) error) error {
	return connect.With(func(c *connect.Connection) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		tasks, err := deadview.OpenTasks(ctx, c)
		if err != nil {
			return err
		}
		return do(ctx, tasks)
	})
}

func printTasks(cmd *cobra.Command, as cli.Format, all []deadletter.Task) error {
	t := &cli.Table{}
	t.Row("TASK", "STATE", "DONE", "OF", "OVERFLOWED", "RATE", "BEGUN", "BY", "SELECTION")
	for i := range all {
		told := deadview.TellTask(&all[i])
		if as == cli.AsJSON {
			if err := cli.PrintJSON(cmd.OutOrStdout(), told); err != nil {
				return err
			}
			continue
		}
		t.Row(told.Name, string(told.State), strconv.Itoa(told.Done), strconv.Itoa(told.Total), strconv.Itoa(told.Overflowed), told.Rate,
			cli.Brief(time.Since(told.Created))+" ago", told.By, cmp.Or(told.Selection, "-"))
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
		Short: "Show one redrive: its progress, and the outcome of its letters",
		Long: `Shows one redrive: its progress, and the outcome of its letters. With --follow it waits for the redrive's end,
and exits as dead redrive does.`,
		Args: cli.Takes("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withTasks(cmd, func(ctx context.Context, tasks *deadview.Tasks) error {
				task, err := tasks.Get(ctx, args[0])
				if err != nil {
					return err
				}
				if follow {
					return f.followTask(ctx, cmd, tasks, task)
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
	told := deadview.TellTask(task)
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

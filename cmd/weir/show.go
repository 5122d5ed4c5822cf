package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/spf13/cobra"
)

func showCommand() *cobra.Command {
	limit, as := 20, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "show API KEY",
		Short: "Show one bucket: its next jobs, and why they wait",
		Long: `Shows one bucket as its dispatcher sees it: how deep it is, how fast it leaks, what its next job waits for and until
when, and its first jobs with the times at which their calls should start.`,
		Example: "  weir show credit-check vip-1\n  weir show sms tenant.42 --limit 3 --json",
		Args:    cli.Takes("API", "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := control.CheckLimit(limit); err != nil {
				return err
			}
			if err := ingest.CheckKey(args[1]); err != nil {
				return cli.Usage(err)
			}
			return aboutAPI(cmd, args[0], func(c *connect.Connection) error {
				detail, err := control.Show(c, args[0], args[1], limit)
				if err != nil {
					return err
				}
				if as == cli.AsJSON {
					return cli.PrintJSON(cmd.OutOrStdout(), detail)
				}
				return printBucket(cmd.OutOrStdout(), detail, time.Now())
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "how many jobs to list")
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

func printBucket(out io.Writer, d *control.KeyShown, now time.Time) error {
	t := &cli.Table{}
	t.Row("bucket", d.API+"/"+cli.Visible(d.Key)+" in "+d.Stream)
	t.Row("depth", fmt.Sprintf("%d of %d", d.Depth, d.Capacity))
	t.Row("in flight", fmt.Sprintf("%d of %d", d.InFlight, d.MaxInFlight))
	t.Row("rate", rateText(d.Rate)+", a call every "+preciseInterval(d.Rate)+burstText(d.Rate))
	t.Row("wait", waitText(d.WaitMS)+" for a job that came now")
	t.Row("waits for", waitingText(d.Waits))
	for i := range d.Limits {
		t.Row("limit "+d.Limits[i].Limit, d.Limits[i].Text())
	}
	if err := t.Print(out); err != nil {
		return err
	}
	jobs := &cli.Table{}
	jobs.Row("POS", "JOB", "SEQ", "STATE", "CALLS", "ETA")
	for _, j := range d.Next {
		eta := "-"
		if j.ETA != nil {
			eta = cli.ClockTime(*j.ETA) + " (in " + cli.Brief(j.ETA.Sub(now)) + ")"
		}
		job := j.Job
		if job == "" {
			job = "-"
		}
		jobs.Row(strconv.Itoa(j.Position), job, strconv.FormatUint(j.Seq, 10), string(j.Phase), strconv.Itoa(j.Calls), eta)
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return fmt.Errorf("write the bucket: %w", err)
	}
	return jobs.Print(out)
}

func preciseInterval(r schedule.RateState) string {
	return (time.Duration(r.IntervalUS) * time.Microsecond).String()
}

func burstText(r schedule.RateState) string {
	if r.Burst == 1 {
		return ""
	}
	text := fmt.Sprintf(", %d together after idling", r.Burst)
	if r.Counts == bucket.ByTokens {
		text += " (a token bucket)"
	}
	return text
}

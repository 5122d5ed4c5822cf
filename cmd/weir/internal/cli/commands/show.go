package commands

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/spf13/cobra"
)

func showCommand() *cobra.Command {
	limit, as := 20, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "show API KEY",
		Short: "Show one bucket: its next jobs, and why they wait",
		Long: `Shows one bucket as its dispatcher sees it: its depth and its rate, what its next job waits for and until when,
and its first jobs, in the order of their calls, with the times at which these should start.

GETS is the key's rate in the long run, beside the other keys that have jobs now, and says if the key gets nothing for a
while. It is the key's own rate, or less if a shared limit or its calls in flight allow less. With several replicas it
is computed from the keys of this key's owner.

CALLBACK is where the ends of the api's jobs are posted, and how many of them are not posted yet.`,
		Example: "  weir show credit-check vip-1\n  weir show sms tenant.42 --limit 3 --json",
		Args:    cli.Takes("API", "KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := admin.CheckLimit(limit); err != nil {
				return err
			}
			if err := ingest.CheckKey(args[1]); err != nil {
				return cli.Usage(err)
			}
			return aboutAPI(cmd, args[0], func(c *connect.Connection) error {
				detail, err := status.Bucket(cmd.Context(), c, args[0], args[1], limit)
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

func printBucket(out io.Writer, d *admin.KeyShown, now time.Time) error {
	t := &cli.Table{}
	t.Row("bucket", d.API+"/"+cli.Visible(d.Key)+" in "+d.Stream)
	t.Row("depth", fmt.Sprintf("%d of %d", d.Depth, d.Capacity)+prioritiesText(d.Jobs))
	t.Row("in flight", fmt.Sprintf("%d of %d", d.InFlight, d.MaxInFlight))
	if d.Polled > 0 {
		t.Row("operations", fmt.Sprintf("%d go on at the api, and are polled", d.Polled))
	}
	t.Row("rate", rateText(d.Rate)+", a call every "+preciseInterval(d.Rate)+burstText(d.Rate))
	if d.Gets != nil {
		t.Row("gets", getsText(d.Gets, d.Waits))
	}
	t.Row("wait", waitText(d.WaitMS)+" for a job that came now")
	t.Row("waits for", status.WaitingText(d.Waits))
	for i := range d.Limits {
		t.Row("limit "+d.Limits[i].Limit, d.Limits[i].Text())
	}
	if d.Callback != nil {
		t.Row("callback", status.CallbackText(d.Callback))
	}
	if err := t.Print(out); err != nil {
		return err
	}
	jobs := &cli.Table{}
	columns := []string{"POS", "JOB", "SEQ", "STATE", "CALLS", "ETA"}
	if len(d.Jobs) > 0 {
		columns = append(columns, "PRIORITY")
	}
	jobs.Row(columns...)
	for _, j := range d.Next {
		eta := "-"
		if j.ETA != nil {
			eta = cli.ClockTime(*j.ETA) + " (in " + cli.Brief(j.ETA.Sub(now)) + ")"
		}
		job := j.Job
		if job == "" {
			job = "-"
		}
		cells := []string{strconv.Itoa(j.Position), job, strconv.FormatUint(j.Seq, 10), string(j.Phase), strconv.Itoa(j.Calls), eta}
		if len(d.Jobs) > 0 {
			cells = append(cells, cmp.Or(j.Priority, ingest.Normal.String()))
		}
		jobs.Row(cells...)
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return fmt.Errorf("write the bucket: %w", err)
	}
	return jobs.Print(out)
}

// prioritiesText formats how many jobs of each priority a bucket holds. It returns "" if all jobs have the normal
// priority.
func prioritiesText(jobs map[string]int) string {
	var parts []string
	for _, p := range []ingest.Priority{ingest.High, ingest.Normal, ingest.Low} {
		if n := jobs[p.String()]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, p))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}

// getsText says how fast a key's jobs are called, and which limit decides that. If the key gets no call now, it also
// says until when.
func getsText(s *schedule.Share, w schedule.Waiting) string {
	switch {
	case s.Stopped && w.Until != nil:
		return "nothing until " + cli.ClockTime(*w.Until) + ", then " + shareText(s)
	case s.Stopped:
		return "nothing while it waits, then " + shareText(s)
	}
	return shareText(s)
}

func shareText(s *schedule.Share) string {
	switch s.Limit {
	case "":
		return perText(s.PerSecond) + ": its own rate"
	case schedule.InFlightLimit:
		return perText(s.PerSecond) + ": as many calls as its in_flight lets run, by how long they take"
	}
	return fmt.Sprintf("%s of %s that limit %s lets pass: %s that %s jobs %s it", perText(s.PerSecond), perText(s.Of), cli.Visible(s.Limit),
		cli.Count(s.Keys, "key"), cli.Verb(s.Keys, "has", "have"), cli.Verb(s.Keys, "uses", "share"))
}

// perText formats calls per second by the shortest unit of time that has at least one call: 2/s, 1.5/min, 3/d.
func perText(perSecond float64) string {
	n, unit := perSecond, "s"
	for _, longer := range []struct {
		times float64
		unit  string
	}{{60, "min"}, {60, "h"}, {24, "d"}} {
		if n >= 0.95 {
			break
		}
		n, unit = n*longer.times, longer.unit
	}
	text := strconv.FormatFloat(n, 'f', 1, 64)
	if n >= 10 {
		text = strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strings.TrimSuffix(text, ".0") + "/" + unit
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

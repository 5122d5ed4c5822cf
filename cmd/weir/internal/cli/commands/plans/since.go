package plans

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/outlook"
	"weir/cmd/weir/internal/ops/whatif"

	"github.com/spf13/cobra"
)

// Bounds of what a plan reads. With them a plan takes at most some 200 MB of memory.
const (
	plannedRecords = 1_000_000
	plannedLetters = 500_000
	plannedKeys    = 100_000
)

// planSince plans from the ledger and the letters.
func planSince(cmd *cobra.Command, f *planFlags) error {
	since, err := sinceOf("--since", f.since, time.Now())
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("call-time") {
		return cli.Usage(errors.New("--call-time is for a trace: the ledger knows how long calls lasted"))
	}
	tries := f.tries(cmd)
	if tries != "" && f.account != "" {
		return cli.Usage(fmt.Errorf("--%s is of one api: name it with --api, not its account", tries))
	}
	c, err := f.configuration()
	if err != nil {
		return cli.Usage(err)
	}
	q := outlook.Question{API: f.api, Account: f.account, Since: since, Now: time.Now(), Config: c}
	q.Most = outlook.Bounds{Records: plannedRecords, Letters: plannedLetters, Keys: plannedKeys}
	recorded, err := readRecorded(cmd, q)
	if err != nil {
		return err
	}
	if tries != "" {
		tell(cmd.ErrOrStderr(), recorded.Notes())
		return f.tryAll(cmd, recorded.Pasts[0].Trace(), whatif.CandidateOf(recorded.Pasts[0].API))
	}
	bar := cli.NewProgressBar(cmd.ErrOrStderr(), "plan", recorded.Jobs())
	defer bar.Clear()
	o, err := outlook.Of(cmd.Context(), recorded, bar.Show)
	if err != nil {
		return err
	}
	bar.Clear()
	tell(cmd.ErrOrStderr(), o.Notes)
	if f.as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), o)
	}
	return printOutlook(cmd.OutOrStdout(), o)
}

// tries returns the first given flag that asks for a candidate, or "" if there is none.
func (f *planFlags) tries(cmd *cobra.Command) string {
	for _, name := range []string{"rate", "capacity", "burst", "counts", "in-flight", "suggest", "longest-wait"} {
		if cmd.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// sinceOf parses the value of a flag that says from when on recorded jobs count. It must be in the past.
func sinceOf(flag, text string, now time.Time) (time.Time, error) {
	since, err := deadview.ReadTime(text, now)
	switch {
	case err != nil:
		return since, cli.Usage(fmt.Errorf("%s %w", flag, err))
	case !since.Before(now):
		return since, cli.Usage(fmt.Errorf("%s %s is not in the past", flag, text))
	}
	return since, nil
}

// readRecorded reads what the ledger and the letters have recorded, and shows its progress.
func readRecorded(cmd *cobra.Command, q outlook.Question) (r *outlook.Recorded, err error) {
	bar := cli.NewProgressBar(cmd.ErrOrStderr(), "read", 0)
	defer bar.Clear()
	q.Read = func(what string, n, of uint64) {
		bar.SetTotal(int(of))          //nolint:gosec // records of one stream
		bar.ShowWith(int(n), " "+what) //nolint:gosec // records of one stream
	}
	err = connect.With(func(c *connect.Connection) error {
		r, err = outlook.Read(cmd.Context(), c, q)
		return err
	})
	return r, err
}

func tell(talk io.Writer, notes []string) {
	for _, n := range notes {
		_, _ = fmt.Fprintln(talk, "weir:", n)
	}
}

// printOutlook prints the outlook for people: for each api what the limits would have done, then the use of the limits,
// the jobs of each day, the growth, and how many times as many jobs the limits bear.
func printOutlook(out io.Writer, o *outlook.Outlook) error {
	for _, a := range o.APIs {
		if err := printOutlookOf(out, a); err != nil {
			return err
		}
	}
	t := &cli.Table{}
	if len(o.Limits) > 0 {
		t.Row("LIMIT", "BUSIEST DAY", "USED", "OF", "PERCENT", "USED UP")
		for i := range o.Limits {
			l := &o.Limits[i]
			name := l.Limit
			if l.API != "" {
				name = l.API + "/" + l.Limit
			}
			if l.Shadow {
				name += " (shadow)"
			}
			t.Row(name, l.Day, l.Used, l.Allowed, strconv.FormatFloat(l.Percent, 'f', 1, 64), daysAhead(l.InDays, o.Growth))
		}
		if err := t.Print(out); err != nil {
			return err
		}
		if err := write(out, "\n"); err != nil {
			return err
		}
	}
	t.Row("DAY", "JOBS")
	for _, d := range o.Days {
		t.Row(d.Day, strconv.Itoa(d.Jobs))
	}
	if err := t.Print(out); err != nil {
		return err
	}
	return write(out, "\ngrowth: %s\nlimits bear: %s\n", growthText(o.Growth), breakText(o))
}

// write writes a text for people.
func write(out io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(out, format, args...); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}

// printOutlookOf prints what the limits would have done to the jobs of one api, and what would have been enough.
func printOutlookOf(out io.Writer, a *outlook.API) error {
	all := []*whatif.Outcome{a.Present}
	if a.Suggested != nil {
		all = append(all, a.Suggested)
	}
	err := write(out, "api %s: %s; recorded are %s, and %s of jobs that overflowed\n",
		a.API, cli.Count(a.Present.Jobs, "job"), cli.Count(a.Calls, "call"), cli.Count(a.Overflowed, "letter"))
	if err == nil {
		err = printPlan(out, all)
	}
	if n := a.Present.OverBudget + a.Present.Refused; n > 0 && err == nil {
		err = write(out, "%s would have been stopped by a budget, or refused for %s cost\n", cli.Count(n, "job"), cli.Verb(n, "its", "their"))
	}
	if err != nil {
		return err
	}
	if len(a.Overflowing) > 0 {
		t := &cli.Table{}
		t.Row("KEY", "JOBS", "OVERFLOWED", "CAPACITY", "NEEDS")
		for _, k := range a.Overflowing {
			needs := "a longer max_wait"
			if k.Needs > 0 {
				needs = strconv.Itoa(k.Needs)
			}
			t.Row(k.Key, strconv.Itoa(k.Jobs), strconv.Itoa(k.Overflowed), strconv.FormatInt(k.Capacity, 10), needs)
		}
		if a.More > 0 {
			t.Row("and " + cli.Count(a.More, "more key"))
		}
		if err := printAfterGap(out, t); err != nil {
			return err
		}
		if a.WithoutMaxWait {
			if err := write(out, "NEEDS and a suggested capacity leave max_wait out: with it, jobs that would wait longer still overflow\n"); err != nil {
				return err
			}
		}
		enough := "with these capacities no rate up to 64 times as high is enough: jobs come at once, or another limit makes them wait"
		if a.Rate != "" {
			enough = "with these capacities nothing overflows at the rate " + a.Rate + ", with all other rates of buckets raised alike"
		}
		if err := write(out, "%s\n", enough); err != nil {
			return err
		}
	}
	return write(out, "\n")
}

// printAfterGap prints an empty line and then a table.
func printAfterGap(out io.Writer, t *cli.Table) error {
	if err := write(out, "\n"); err != nil {
		return err
	}
	return t.Print(out)
}

// daysAhead says in how many days something happens, if the jobs grow as g says.
func daysAhead(days *int, g *outlook.Growth) string {
	switch {
	case days == nil && !g.Known():
		return "not known"
	case days == nil:
		return "not within a year"
	case *days == 0:
		return "already"
	}
	return "in " + cli.Count(*days, "day")
}

func growthText(g *outlook.Growth) string {
	switch {
	case g == nil:
		return "not known, because that needs three whole days of UTC"
	case g.Unclear:
		return fmt.Sprintf("none that is clear: the %d whole days differ by more than they grow", g.Days)
	}
	return fmt.Sprintf("%+.1f jobs more each day, by a straight line through %d whole days that ends at %.0f jobs a day", g.More, g.Days, g.Last)
}

func breakText(o *outlook.Outlook) string {
	b, on := o.Breaks, ""
	if len(o.SoughtOn) > 0 {
		on = "on the busiest days, which alone were tried, "
	}
	if b == nil {
		return fmt.Sprintf("%s%.3g times as many jobs, which is as many as were tried", on, o.Tried)
	}
	what := "a budget of " + b.API + " stops jobs"
	if b.Key != "" {
		what = fmt.Sprintf("key %s of %s overflows", cli.Visible(b.Key), b.API)
	}
	if b.Load <= 1 {
		return "not even the recorded jobs: " + what
	}
	return fmt.Sprintf("%sless than %.3g times as many jobs: then %s first; by the growth: %s", on, b.Load, what, daysAhead(b.InDays, o.Growth))
}

package commands

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/joblist"

	"github.com/spf13/cobra"
)

func jobsCommand() *cobra.Command {
	choice, as := joblist.Choice{Limit: 100}, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List jobs: waiting, being called, polled, done, dead",
		Long: `Lists jobs, the newest first by when they came to their state: when they were accepted, called, or ended. The
queues know which jobs wait, which are being called, and which are polled because the api goes on working on them. An
index in the memory of each dispatching weir knows which jobs are done, from the ledger, and which are dead letters.
"weir job ID" tells the story of one.

A weir that has just started reads the ledger in the background. Until it has read all of it, and if its index has no
room for all jobs, the command says from what time on it lists ended jobs. Exit code 3: no job matches.`,
		Example: "  weir jobs\n  weir jobs --state dead --status 5xx --since 1h\n  weir jobs --api credit-check --key vip-1 --limit 1000 --json | jq .job",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := choice.Read(time.Now())
			if err != nil {
				return cli.Usage(fmt.Errorf("--%w", err))
			}
			return connect.With(func(c *connect.Connection) error { return listJobs(cmd.Context(), c, cmd, &q, as) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&choice.API, "api", "", "only jobs of this api")
	flags.StringVar(&choice.Key, "key", "", "only jobs of this key, of --api or of every api")
	flags.StringVar(&choice.State, "state", "", "only jobs that are waiting, calling, polling, done or dead")
	flags.StringVar(&choice.Status, "status", "", "only with this last answer: 503, or 5xx; 0 for dead letters without one")
	flags.StringVar(&choice.Since, "since", "", "only from this RFC 3339 time on, or from this long ago, such as 2h or 1d")
	flags.StringVar(&choice.Until, "until", "", "only before this time, or until this long ago")
	flags.StringVar(&choice.ID, "id", "", "only jobs whose ids contain this")
	flags.StringVar(&choice.After, "after", "", "list the jobs after this place, which an earlier list printed at its end")
	flags.IntVar(&choice.Limit, "limit", choice.Limit, "how many to list, up to "+strconv.Itoa(joblist.MostListed))
	as.Add(flags, "one JSON object per line")
	return cmd
}

func listJobs(ctx context.Context, c *connect.Connection, cmd *cobra.Command, q *joblist.Question, as cli.Format) error {
	page, err := joblist.List(ctx, c, q)
	if err != nil {
		return err
	}
	out, talk := cmd.OutOrStdout(), cmd.ErrOrStderr()
	for _, silent := range page.Silent {
		_, _ = fmt.Fprintf(talk, "weir: a queue could not be asked: %s\n", silent)
	}
	if page.Behind > 0 {
		_, _ = fmt.Fprintf(talk, "weir: the newest %s are still being read: their jobs are not listed yet\n", cli.Count(page.Behind, "record"))
	}
	if page.Missing > 0 {
		_, _ = fmt.Fprintf(talk, "weir: %s of calls are lost or cannot be read: jobs that were done may be missing\n", cli.Count(page.Missing, "record"))
	}
	if len(page.Jobs) == 0 {
		return as.Empty(out, page.Empty())
	}
	if as == cli.AsJSON {
		for i := range page.Jobs {
			if err := cli.PrintJSON(out, &page.Jobs[i]); err != nil {
				return err
			}
		}
	} else if err := jobTable(page.Jobs, time.Now()).Print(out); err != nil {
		return err
	}
	switch {
	case page.Next != "":
		_, _ = fmt.Fprintf(talk, "weir: there are older jobs: --after %s lists them\n", page.Next)
	case page.Building:
		_, _ = fmt.Fprintf(talk, "weir: jobs that ended before %s are still being read\n", cli.ClockTime(page.Since))
	case !page.Since.IsZero():
		_, _ = fmt.Fprintf(talk, "weir: jobs that ended before %s are not listed: `weir job ID` finds them\n", cli.ClockTime(page.Since))
	}
	return nil
}

func jobTable(jobs []joblist.Job, now time.Time) *cli.Table {
	t := &cli.Table{}
	t.Row("JOB", "STATE", "FOR", "API", "KEY", "CALLS", "STATUS", "WHY")
	for i := range jobs {
		j := &jobs[i]
		status := ""
		if j.Status > 0 {
			status = strconv.Itoa(j.Status)
		}
		t.Row(cmp.Or(cli.Visible(j.Job), "-"), string(j.State), cli.Brief(max(0, now.Sub(j.At))), cmp.Or(j.API, "-"), cmp.Or(cli.Visible(j.Key), "-"), strconv.Itoa(j.Calls), cmp.Or(status, "-"), cmp.Or(whyOf(j), "-"))
	}
	return t
}

// whyOf returns the reason and letter of a dead job, or the phase of a waiting job; "" for any other job.
func whyOf(j *joblist.Job) string {
	switch {
	case j.Letter > 0:
		return fmt.Sprintf("%s, letter %d", j.Reason, j.Letter)
	case j.State == joblist.Waiting && string(j.Phase) != string(joblist.Waiting):
		return strings.ReplaceAll(string(j.Phase), "_", " ")
	}
	return ""
}

package commands

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/cmd/weir/internal/ops/status"
	"weir/cmd/weir/internal/serve/admin"
	"weir/ingest"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func jobCommand() *cobra.Command {
	var api, key string
	scan, as := jobstory.UsualScan, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "job ID",
		Short: "Show where a job is, or what became of it",
		Long: `Gathers what is known of a job's id: from the queues, the ledger, the results, the dead letters and the events.
The same id under several apis and keys is several jobs; the command shows all of them, with bodies of results of up
to 64 KiB. If a job has ended and its api has a callback, CALLBACK says whether the end was posted
(` + "`weir help callbacks`" + `).

A dispatching weir keeps an index of ids in memory, from which the command learns what to read. Until that index is
whole, which takes a while after a start, and with --scan, the command reads the newest messages of the streams, as many
as --scan says: measured were 70,000 to 100,000 a second. With --api and --key it reads only theirs. The owners of the
queues know the ids of waiting jobs. Exit code 3: nothing has the id, as far back as the command looked.`,
		Example: "  weir job order-17\n  weir job order-17 --api credit-check --key vip-1 --json",
		Args:    cli.Takes("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if key != "" && api == "" {
				return cli.Usage(errors.New("--key needs --api: keys belong to apis"))
			}
			if err := cmp.Or(ingest.CheckJobID(args[0]), ingest.CheckChoice(api, key)); err != nil {
				return cli.Usage(err)
			}
			if scan < 0 {
				return cli.Usage(errNoScan)
			}
			return connect.With(func(c *connect.Connection) error {
				o := jobstory.Options{
					Job: args[0], API: api, Key: key, Scan: scan, Search: cmd.Flags().Changed("scan"), Bodies: true, Posted: true,
				}
				if o.APIs = []string{api}; api == "" {
					if current, ok := admin.RunningConfig(cmd.Context(), c); ok {
						o.APIs = current.Names()
					}
				}
				found, err := jobstory.Find(cmd.Context(), c, o)
				if err != nil {
					return err
				}
				return printTimeline(cmd, found, args[0], as)
			})
		},
	}
	cmd.Flags().StringVar(&api, "api", "", "only jobs of this api")
	cmd.Flags().StringVar(&key, "key", "", "only jobs of this key; needs --api")
	addScan(cmd.Flags(), &scan)
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

var errNoScan = errors.New("--scan is 0 for all, or how many messages to look through")

func addScan(flags *pflag.FlagSet, scan *int) {
	flags.IntVar(scan, "scan", *scan, "how many of the newest messages of each stream to read; 0 for all")
}

func printTimeline(cmd *cobra.Command, t *jobstory.Timeline, id string, as cli.Format) error {
	talk := cmd.ErrOrStderr()
	for _, silent := range t.Silent {
		_, _ = fmt.Fprintf(talk, "weir: a queue could not be asked: %s\n", silent)
	}
	for _, l := range t.Looked {
		if !l.All {
			_, _ = fmt.Fprintf(talk, "weir: %s was looked through back to %s, its newest %s: --scan 0 looks further, --api and --key make it shorter\n",
				l.Stream, cli.ClockTime(l.Back), cli.Count(l.Messages, "message"))
		}
	}
	if err := t.NotFound(id); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if as == cli.AsJSON {
		return cli.PrintJSON(out, t)
	}
	for i, j := range t.Jobs {
		if i > 0 {
			if _, err := fmt.Fprintln(out); err != nil {
				return fmt.Errorf("write the timeline: %w", err)
			}
		}
		if err := printJob(out, j); err != nil {
			return err
		}
	}
	return nil
}

func printJob(out io.Writer, j *jobstory.Job) error {
	t := &cli.Table{}
	t.Row("job", cli.Visible(j.Job)+" of "+cmp.Or(j.API, "-")+"/"+cmp.Or(cli.Visible(j.Key), "-"))
	t.Row("state", j.Text())
	if j.Queue != nil && j.Queue.Waits != nil {
		t.Row("its bucket waits for", status.WaitingText(*j.Queue.Waits))
	}
	t.Row("spent", spentText(j.Spent, j.Doubt))
	if j.Callback != nil {
		t.Row("callback", j.Callback.Text)
	}
	if err := t.Print(out); err != nil {
		return err
	}
	for i := range j.Steps {
		t.Row(cli.ClockTime(j.Steps[i].At), j.Steps[i].Text)
	}
	if err := t.PrintWhole(out); err != nil || j.Result == nil {
		return err
	}
	return printResult(out, j.Result)
}

// printResult prints the body of a job's result. If the story does not contain the body, it prints how to get it.
func printResult(out io.Writer, r *jobstory.KeptResult) error {
	about := "result, " + cli.Count(r.Size, "byte")
	if r.ContentType != "" {
		about += " of " + cli.Visible(r.ContentType)
	}
	switch {
	case r.Size > jobstory.MostBody:
		about += ": `weir results get` prints it"
	case r.Size == 0:
		about = "result, empty"
	case r.Text == nil:
		about += ", which is no text: `weir results get` prints it"
	}
	if _, err := fmt.Fprintln(out, about); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	if r.Text == nil || r.Size == 0 {
		return nil
	}
	return cli.WriteBytes(out, append([]byte(strings.TrimSuffix(*r.Text, "\n")), '\n'))
}

// spentText formats an amount. It shows the part in doubt as a separate amount.
func spentText(spent, doubt string) string {
	if doubt == "0.00" {
		return spent
	}
	return spent + ", and perhaps " + doubt + " more"
}

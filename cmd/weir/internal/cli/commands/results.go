package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func resultsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Read the results of jobs that are done",
		Long: `Reads results. The stream WEIR_RESULTS keeps them for results.max_age. The commands read the stream directly,
whether or not a weir runs. A job that ended otherwise is a dead letter; ` + "`weir job`" + ` finds both.`,
		Example: "  weir results ls --api credit-check\n  weir results get order-17 > answer.json\n  weir results tail",
		RunE:    group,
	}
	cmd.AddCommand(resultsGetCommand(), resultsListCommand(), resultsTailCommand())
	return cmd
}

// resultFlags select results.
type resultFlags struct{ api, key, since string }

func (f *resultFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.api, "api", "", "only results of this api")
	flags.StringVar(&f.key, "key", "", "only results of this key; needs --api")
	flags.StringVar(&f.since, "since", "", "only from this RFC 3339 time on, or from this long ago, such as 2h or 1d")
}

func (f *resultFlags) filter(job string) (ledger.ResultFilter, error) {
	if f.key != "" && f.api == "" {
		return ledger.ResultFilter{}, cli.Usage(errors.New("--key needs --api: keys belong to apis"))
	}
	if err := ingest.CheckChoice(f.api, f.key); err != nil {
		return ledger.ResultFilter{}, cli.Usage(fmt.Errorf("--%w", err))
	}
	since, err := deadview.ReadTime(f.since, time.Now())
	if err != nil {
		return ledger.ResultFilter{}, cli.Usage(fmt.Errorf("--since %w", err))
	}
	return ledger.ResultFilter{API: f.api, Key: f.key, Job: job, Since: since}, nil
}

func resultRow(r *ledger.Result, when string) []string {
	return []string{strconv.FormatUint(r.Seq, 10), when, r.API, cmp.Or(r.Key, "-"), r.Job, strconv.Itoa(r.Status), strconv.Itoa(r.Size)}
}

func resultsListCommand() *cobra.Command {
	flags, job, limit, as := resultFlags{}, "", 100, cli.ForPeople
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List results, newest first",
		Long:    "Lists results, the newest first. It does not read the bodies; `weir results get JOB` prints one.",
		Example: "  weir results ls\n  weir results ls --api credit-check --since 1h --limit 0 --json | jq .job",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return cli.Usage(errors.New("--limit is 0 for all, or how many to list"))
			}
			filter, err := flags.filter(job)
			if err != nil {
				return err
			}
			return connect.With(func(c *connect.Connection) error { return listResults(c, cmd, filter, limit, as) })
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().StringVar(&job, "job", "", "only results of the job with this id; reads the headers of all results")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many to list; 0 for all")
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}

func listResults(c *connect.Connection, cmd *cobra.Command, filter ledger.ResultFilter, limit int, as cli.Format) error {
	out, listed := cmd.OutOrStdout(), 0
	t := &cli.Table{}
	t.Row("SEQ", "AGE", "API", "KEY", "JOB", "STATUS", "BYTES")
	_, err := ledger.NewestResults(cmd.Context(), c.JetStream, filter, 0, func(r ledger.Result) error {
		if listed++; as == cli.AsJSON {
			if err := cli.PrintJSON(out, jobstory.ResultOf(&r)); err != nil {
				return err
			}
		} else {
			t.Row(resultRow(&r, cli.Brief(time.Since(r.Stored)))...)
			if t.Full() {
				if err := t.Print(out); err != nil {
					return err
				}
			}
		}
		if listed == limit {
			return stream.ErrEnough
		}
		return nil
	})
	switch {
	case err != nil:
		return jobstory.ExplainResults(c, err)
	case listed == 0:
		return as.Empty(out, errors.New("no result is kept, or none matches"))
	case as == cli.AsJSON:
		return nil
	}
	return t.Print(out)
}

func resultsGetCommand() *cobra.Command {
	flags, scan, as := resultFlags{}, jobstory.UsualScan, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "get JOB",
		Short: "Print the result of a job",
		Long: `Prints the body of a job's result on stdout, byte for byte unless that is a terminal, and the course of the
call on stderr. The index of ended jobs says where it is. Until that index is whole, the command searches the headers of
the newest results for the id, as many as --scan says; --api and --key make that faster. If several keys have the id, it has several results: choose one with --api and --key.`,
		Example: "  weir results get order-17 > answer.json\n  weir results get order-17 --api credit-check --key vip-1 --json",
		Args:    cli.Takes("JOB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			filter, err := flags.filter(args[0])
			if err != nil {
				return err
			}
			if scan < 0 {
				return cli.Usage(errNoScan)
			}
			return connect.With(func(c *connect.Connection) error { return getResult(c, cmd, filter, scan, as) })
		},
	}
	flags.add(cmd.Flags())
	addScan(cmd.Flags(), &scan)
	as.Add(cmd.Flags(), "one JSON object")
	return cmd
}

func getResult(c *connect.Connection, cmd *cobra.Command, filter ledger.ResultFilter, scan int, as cli.Format) error {
	r, err := jobstory.FindResult(cmd.Context(), c, filter, scan)
	if err != nil {
		return err
	}
	if as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), jobstory.ResultOf(r))
	}
	t := &cli.Table{}
	t.Row("result", fmt.Sprintf("of %s/%s, stored %s", r.API, cli.Visible(r.Key), cli.ClockTime(r.Stored)))
	t.Row("outcome", "done with status "+strconv.Itoa(r.Status))
	t.Row("took", jobstory.TookText(r.Header)+", price "+r.Header.Get(ledger.HeaderPrice))
	if r.Header.Get(ledger.HeaderBody) == ledger.BodyCut {
		t.Row("body", "only the beginning of the answer was kept (results.max_body)")
	}
	if err := t.Print(cmd.ErrOrStderr()); err != nil {
		return err
	}
	return cli.WriteBytes(cmd.OutOrStdout(), r.Body)
}

func resultsTailCommand() *cobra.Command {
	flags, limit, as := resultFlags{}, 0, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow results as they arrive",
		Long: `Prints results as they arrive, beginning now or at --since, until Ctrl-C or --limit. It continues when the
connection to the server comes back. With --json each line has the body.`,
		Example: "  weir results tail\n  weir results tail --api credit-check --since 10m --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, err := flags.filter("")
			if err != nil {
				return err
			}
			return tailing(cmd, limit, func(ctx context.Context, c *connect.Connection, one func(json any, row []string) error) error {
				return jobstory.ExplainResults(c, ledger.FollowResults(ctx, c.JetStream, filter, func(r ledger.Result) error {
					return one(jobstory.ResultOf(&r), resultRow(&r, cli.ClockTime(r.Stored)))
				}))
			}, as)
		},
	}
	flags.add(cmd.Flags())
	addTailLimit(cmd.Flags(), &limit)
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}

func addTailLimit(flags *pflag.FlagSet, limit *int) {
	flags.IntVar(limit, "limit", 0, "end after this many; 0 for never")
}

// tailing runs a command that follows a stream, until a signal or the limit ends it. follow must pass each message to
// its argument one, which prints the message.
func tailing(cmd *cobra.Command, limit int, follow func(ctx context.Context, c *connect.Connection, one func(json any, row []string) error) error, as cli.Format) error {
	if limit < 0 {
		return cli.Usage(errors.New("--limit is 0 for no end, or after how many to end"))
	}
	return connect.With(func(c *connect.Connection) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		out, printed := cmd.OutOrStdout(), 0
		err := follow(ctx, c, func(json any, row []string) (err error) {
			if as == cli.AsJSON {
				err = cli.PrintJSON(out, json)
			} else {
				t := &cli.Table{}
				t.Row(row...)
				err = t.Print(out)
			}
			if printed++; err == nil && printed == limit {
				err = stream.ErrEnough
			}
			return err
		})
		if errors.Is(err, stream.ErrEnough) {
			return nil
		}
		return err
	})
}

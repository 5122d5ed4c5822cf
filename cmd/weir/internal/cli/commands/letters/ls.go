package letters

import (
	"errors"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

func deadListCommand() *cobra.Command {
	flags, limit, as := letterFlags{}, 100, cli.ForPeople
	cmd := &cobra.Command{
		Use:     "ls",
		Short:   "List dead letters, newest first",
		Long:    "Lists dead letters, the newest first. It does not read the bodies; `weir dead show SEQ` shows one.",
		Example: "  weir dead ls\n  weir dead ls --api credit-check --reason rejected --since 1d --limit 0 --json | jq .job",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return cli.Usage(errors.New("--limit is 0 for all, or how many to list"))
			}
			filter, err := flags.filter(time.Now())
			if err != nil {
				return err
			}
			return connect.With(func(c *connect.Connection) error { return listLetters(c, cmd, filter, limit, as) })
		},
	}
	flags.add(cmd.Flags())
	cmd.Flags().StringVar(&flags.job, "job", "", "only letters of the job with this id; reads the headers of all letters")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many to list; 0 for all")
	as.Add(cmd.Flags(), "one JSON object per line")
	return cmd
}

func listLetters(c *connect.Connection, cmd *cobra.Command, filter deadletter.Filter, limit int, as cli.Format) error {
	store, err := deadview.Open(cmd.Context(), c)
	if err != nil {
		return err
	}
	out, listed := cmd.OutOrStdout(), 0
	t := &cli.Table{}
	t.Row("SEQ", "AGE", "API", "KEY", "REASON", "STATUS", "BILLED", "DETAIL")
	err = store.Newest(cmd.Context(), filter, limit, func(k deadletter.Kept) error {
		listed++
		if as == cli.AsJSON {
			return cli.PrintJSON(out, deadview.Of(&k))
		}
		t.Row(letterRow(&k, cli.Brief(time.Since(k.Stored)))...)
		if t.Full() {
			return t.Print(out)
		}
		return nil
	})
	if err != nil {
		return c.Explain(err)
	}
	if listed == 0 {
		return as.Empty(out, deadview.None(filter))
	}
	if as == cli.AsJSON {
		return nil
	}
	return t.Print(out)
}

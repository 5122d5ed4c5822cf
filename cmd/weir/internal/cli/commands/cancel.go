package commands

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
	"weir/ingest"

	"github.com/spf13/cobra"
)

func cancelCommand() *cobra.Command {
	var q admin.Cancellation
	as := cli.ForPeople
	cmd := &cobra.Command{
		Use:   "cancel API JOB",
		Short: "End a job that has not been called yet",
		Long: `Ends a job that waits: weir does not call it, and it becomes a dead letter with the reason cancelled. A job
whose call is running cannot be cancelled. The same id under two keys is two jobs: name the key.`,
		Example: "  weir cancel credit-check 0199aa00-0000-7000-8000-000000000001 --why 'customer withdrew'\n  weir cancel sms order-7 --key tenant.42",
		Args:    cli.Takes("API", "JOB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			q.Job = args[1]
			if q.Key != "" {
				if err := ingest.CheckKey(q.Key); err != nil {
					return cli.Usage(err)
				}
			}
			return aboutAPI(cmd, args[0], func(c *connect.Connection) error {
				answers, err := admin.Cancel(c, args[0], q)
				if err != nil {
					return err
				}
				return printCancelled(cmd, args[0], q.Job, answers, as)
			})
		},
	}
	cmd.Flags().StringVar(&q.Key, "key", "", "the job's key, if several keys have its id")
	cmd.Flags().StringVar(&q.Why, "why", "", "the reason, for the letter")
	as.Add(cmd.Flags(), "one JSON object per job")
	return cmd
}

func printCancelled(cmd *cobra.Command, api, job string, answers []desk.CancelAnswer, as cli.Format) error {
	for _, a := range answers {
		if as == cli.AsJSON {
			if err := cli.PrintJSON(cmd.OutOrStdout(), a); err != nil {
				return err
			}
		}
		if a.Verdict == schedule.CancelTaken {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s of %s/%s is cancelled, its letter is stored\n", cli.Visible(job), api, cli.Visible(a.Key))
		}
	}
	return admin.Cancelled(api, job, answers)
}

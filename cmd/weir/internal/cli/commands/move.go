package commands

import (
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/migrate"

	"github.com/spf13/cobra"
)

func moveCommand() *cobra.Command {
	o, confirm := migrate.Options{}, cli.Confirmation{}
	cmd := &cobra.Command{
		Use:   "move --from DIR|URL [--to URL]",
		Short: "Move everything to another NATS server: jobs, letters, results, the ledger, the configuration",
		Long: `Copies every stream and key-value bucket of weir to another server, so that weir continues there: jobs in their
order, with the same sequences and ids, retry marks, intents and the state of the limits. No job is lost, and none is
called twice.

Stop weir first. --from is the data directory of a weir with the server inside, or the address of a server. --to is the
address of the new one, by default WEIR_NATS_URL; the other variables of sign-in and WEIR_REPLICAS apply to it as with
serve. The user needs the role mover of deploy/nats, and WEIR_NATS_INBOX must be that role's prefix of inboxes.

You may interrupt it at any time and run it again. Until it is done, weir starts on neither server; when it is done,
only on the new one. The old server keeps its data. --abandon reverts a move that is not done.`,
		Example: "  WEIR_NATS_INBOX=_INBOX.mover weir move --from weir-data --to nats://mover@nats-1:4222\n" +
			"  WEIR_NATS_URL=tls://nats:4222 WEIR_NATS_CREDS=mover.creds WEIR_NATS_INBOX=_INBOX.mover weir move --from /var/lib/weir/data",
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Talk = cmd.OutOrStdout(), cmd.ErrOrStderr()
			o.Confirm = func(question string) error { return confirm.Ask(cmd, question) }
			return migrate.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.From, "from", "", "the data directory, or the server's address")
	flags.StringVar(&o.FromCreds, "from-creds", "", "credentials file for --from, if that is an address")
	flags.StringVar(&o.To, "to", "", "the new server's address (default WEIR_NATS_URL)")
	flags.BoolVar(&o.Abandon, "abandon", false, "revert a move that is not done: delete the copies, and let weir start on the old server")
	confirm.Add(flags)
	o.As.Add(flags, "one JSON object")
	return cmd
}

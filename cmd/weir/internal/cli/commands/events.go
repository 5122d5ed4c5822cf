package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"
	"weir/ingest"

	"github.com/spf13/cobra"
)

func eventsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Follow events: overflow, letters, holds, budgets, operators' commands",
		Long: `Reads weir's events. They are CloudEvents, and the stream WEIR_EVENTS keeps them for 24 hours, at most
1 GiB. ` + "`weir help events`" + ` describes them.`,
		Example: "  weir events tail\n  weir events tail --type held --since 1h",
		RunE:    group,
	}
	cmd.AddCommand(eventsTailCommand())
	return cmd
}

func eventsTailCommand() *cobra.Command {
	kind, flags, limit, as := "", resultFlags{}, 0, cli.ForPeople
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Follow events as they arrive",
		Long: `Prints events as they arrive, beginning now or at --since, until Ctrl-C or --limit. It continues when the
connection to the server comes back. With --json each line is the CloudEvent as it was sent.`,
		Example: "  weir events tail\n  weir events tail --type throttled --api credit-check --since 1h --json | jq .data",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if types := deadletter.EventTypes(); kind != "" && !slices.Contains(types, deadletter.EventType(kind)) {
				return cli.Usage(fmt.Errorf("--type %q: the types are %s", kind, eventTypeNames()))
			}
			if err := ingest.CheckChoice(flags.api, flags.key); err != nil {
				return cli.Usage(fmt.Errorf("--%w", err))
			}
			since, err := deadview.ReadTime(flags.since, time.Now())
			if err != nil {
				return cli.Usage(fmt.Errorf("--since %w", err))
			}
			filter := deadletter.EventFilter{Type: deadletter.EventType(kind), API: flags.api, Key: flags.key, Since: since}
			return tailing(cmd, limit, func(ctx context.Context, c *connect.Connection, one func(json any, row []string) error) error {
				err := deadletter.FollowEvents(ctx, c.JetStream, filter, func(e deadletter.KeptEvent) error {
					return one(json.RawMessage(e.JSON), eventRow(&e))
				})
				if errors.Is(err, deadletter.ErrNoEvents) {
					return cli.NotFound(err)
				}
				return c.Explain(err)
			}, as)
		},
	}
	cmd.Flags().StringVar(&kind, "type", "", "only events of this type: "+eventTypeNames())
	flags.add(cmd.Flags())
	cmd.Flags().Lookup("api").Usage = "only events about this api; _ for those about none"
	cmd.Flags().Lookup("key").Usage = "only events about this key"
	addTailLimit(cmd.Flags(), &limit)
	as.Add(cmd.Flags(), "one CloudEvent per line")
	return cmd
}

func eventTypeNames() string {
	var names []string
	for _, t := range deadletter.EventTypes() {
		names = append(names, string(t))
	}
	return strings.Join(names, ", ")
}

func eventRow(e *deadletter.KeptEvent) []string {
	return []string{cli.ClockTime(e.Stored), string(e.Type), cmp.Or(e.API, "-"), cmp.Or(e.Key, "-"), e.Text()}
}

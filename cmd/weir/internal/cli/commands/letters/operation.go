package letters

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"

	"github.com/spf13/cobra"
)

// letterOperation holds the flags that operations on letters share: which letters, how fast, and whether only to plan
// the operation.
type letterOperation struct {
	letterFlags

	rate    string
	dryRun  bool
	confirm cli.Confirmation
	as      cli.Format
	chosen  deadview.Selection
	every   *bucket.Rate // the given rate; nil: no rate was given
}

// addTo adds the flags to a command. rate is the default rate, "" for none.
func (o *letterOperation) addTo(cmd *cobra.Command, rate, rateUsage, dryRunUsage string) {
	o.add(cmd.Flags())
	o.confirm.Add(cmd.Flags())
	o.as.Add(cmd.Flags(), "one JSON object")
	cmd.Flags().StringVar(&o.rate, "rate", rate, rateUsage)
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, dryRunUsage)
}

// on reads the flags, opens the letters, and calls do.
func (o *letterOperation) on(cmd *cobra.Command, args []string, do func(ctx context.Context, c *connect.Connection, store *deadview.Store) error) error {
	if o.rate != "" {
		r, err := grammar.ParseRate(o.rate)
		if err != nil {
			return cli.Usage(fmt.Errorf("--rate: %w", err))
		}
		o.every = &r
	}
	var err error
	if o.chosen, err = o.selection(args, time.Now()); err != nil {
		return err
	}
	return withLetters(cmd, do)
}

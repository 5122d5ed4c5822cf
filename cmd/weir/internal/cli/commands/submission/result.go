package submission

import (
	"context"
	"errors"
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
)

// awaitResult blocks until the end of the job arrives, and prints it.
func (f *submitFlags) awaitResult(cmd *cobra.Command, results *nats.Subscription, receipt *ingest.Receipt) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	msg, err := results.NextMsgWithContext(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no result within %s: job %s goes on, and its result will be at weir.results.%s.%s", cli.Brief(f.timeout),
			receipt.Job, f.api, ingest.Token(receipt.Key))
	} else if err != nil {
		return fmt.Errorf("wait for the result: %w", err)
	}
	h, out, talk := msg.Header, cmd.OutOrStdout(), cmd.ErrOrStderr()
	outcome := h.Get(ledger.HeaderOutcome)
	if f.as == cli.AsJSON {
		if err := cli.PrintJSON(out, jobstory.EndOf(msg)); err != nil {
			return err
		}
	} else if outcome == ledger.Done {
		t := &cli.Table{}
		t.Row("outcome", "done with status "+h.Get(ledger.HeaderStatus))
		t.Row("took", jobstory.TookText(h)+", price "+h.Get(ledger.HeaderPrice))
		if err := t.Print(talk); err != nil {
			return err
		}
		if err := cli.WriteBytes(out, msg.Data); err != nil {
			return err
		}
	}
	if outcome != ledger.Done {
		return fmt.Errorf("job %s became a dead letter (%s): %s; billed: %s (weir dead ls --api %s --key '%s')", receipt.Job, outcome,
			cli.Visible(h.Get(deadletter.HeaderDetail)), h.Get(deadletter.HeaderBilled), f.api, receipt.Key)
	}
	return nil
}

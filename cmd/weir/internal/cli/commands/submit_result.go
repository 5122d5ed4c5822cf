package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

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
		t.Row("took", tookText(h)+", price "+h.Get(ledger.HeaderPrice))
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

// tookText formats how long the job waited for its last call, and how long after that the job was done. If the job got
// the answer of another job, tookText names that job.
func tookText(h nats.Header) string {
	at := func(name string) time.Time {
		t, err := time.Parse(time.RFC3339Nano, h.Get(name))
		if err != nil {
			return time.Time{}
		}
		return t
	}
	called := at(ledger.HeaderCalledAt)
	if of := h.Get(ledger.HeaderReused); of != "" {
		finished := at(ledger.HeaderFinishedAt)
		return fmt.Sprintf("no call, waited %s for the answer of job %s, which is %s old", cli.Brief(finished.Sub(at(ledger.HeaderAcceptedAt))),
			cli.Visible(of), cli.Brief(finished.Sub(called)))
	}
	calls := h.Get(ledger.HeaderCalls) + " calls"
	if calls == "1 calls" {
		calls = "1 call"
	}
	return fmt.Sprintf("%s, waited %s, done %s after the call began", calls, cli.Brief(called.Sub(at(ledger.HeaderAcceptedAt))),
		cli.Brief(at(ledger.HeaderFinishedAt).Sub(called)))
}

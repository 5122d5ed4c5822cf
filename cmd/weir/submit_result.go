package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"weir/cmd/weir/internal/cli"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"
)

// resultJSON is a job's end as --json prints it: a result's, or a letter's notice.
type resultJSON struct {
	Job         string `json:"job"`
	Outcome     string `json:"outcome"`
	Status      int    `json:"status"`
	Attempts    int    `json:"attempts"`
	Calls       int    `json:"calls,omitempty"`
	Price       string `json:"price,omitempty"`
	AcceptedAt  string `json:"accepted_at,omitempty"`
	CalledAt    string `json:"called_at,omitempty"`
	FinishedAt  string `json:"finished_at,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Detail      string `json:"detail,omitempty"` // of a letter
	Billed      string `json:"billed,omitempty"` // of a letter
	bodyJSON
}

// bodyJSON is a body as JSON can carry it: one of the two.
type bodyJSON struct {
	Text   *string `json:"body,omitempty"`
	Base64 string  `json:"body_base64,omitempty"`
}

func jsonBody(body []byte) bodyJSON {
	if utf8.Valid(body) {
		text := string(body)
		return bodyJSON{Text: &text}
	}
	return bodyJSON{Base64: base64.StdEncoding.EncodeToString(body)}
}

// awaitResult waits for the job's end and prints it.
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
		if err := cli.PrintJSON(out, endOf(msg)); err != nil {
			return err
		}
	} else if outcome == ledger.Done {
		t := &cli.Table{}
		t.Row("outcome", "done with status "+h.Get(ledger.HeaderStatus))
		t.Row("took", tookText(h)+", price "+h.Get(ledger.HeaderPrice))
		if err := t.Print(talk); err != nil {
			return err
		}
		if _, err := out.Write(msg.Data); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	if outcome != ledger.Done {
		return fmt.Errorf("job %s became a dead letter (%s): %s; billed: %s (weir dead ls --api %s --key '%s')", receipt.Job, outcome,
			cli.Visible(h.Get(deadletter.HeaderDetail)), h.Get(deadletter.HeaderBilled), f.api, receipt.Key)
	}
	return nil
}

func endOf(msg *nats.Msg) resultJSON {
	h := msg.Header
	number := func(name string) int {
		n, err := strconv.Atoi(h.Get(name))
		if err != nil {
			return 0
		}
		return n
	}
	end := resultJSON{
		Job: h.Get(ingest.HeaderJobID), Outcome: h.Get(ledger.HeaderOutcome), Status: number(ledger.HeaderStatus),
		Attempts: number(ledger.HeaderAttempts), Calls: number(ledger.HeaderCalls), Price: h.Get(ledger.HeaderPrice),
		AcceptedAt: h.Get(ledger.HeaderAcceptedAt), CalledAt: h.Get(ledger.HeaderCalledAt),
		FinishedAt: h.Get(ledger.HeaderFinishedAt), ContentType: h.Get("Content-Type"),
	}
	if end.Outcome == ledger.Done {
		end.bodyJSON = jsonBody(msg.Data)
		return end
	}
	end.Status, end.Attempts = number(deadletter.HeaderStatus), number(deadletter.HeaderAttempts)
	end.Detail, end.Billed = h.Get(deadletter.HeaderDetail), h.Get(deadletter.HeaderBilled)
	return end
}

// tookText says how long the job waited for its last call and how long that took.
func tookText(h nats.Header) string {
	at := func(name string) time.Time {
		t, err := time.Parse(time.RFC3339Nano, h.Get(name))
		if err != nil {
			return time.Time{}
		}
		return t
	}
	called := at(ledger.HeaderCalledAt)
	calls := h.Get(ledger.HeaderCalls) + " calls"
	if calls == "1 calls" {
		calls = "1 call"
	}
	return fmt.Sprintf("%s, waited %s, called for %s", calls, cli.Brief(called.Sub(at(ledger.HeaderAcceptedAt))),
		cli.Brief(at(ledger.HeaderFinishedAt).Sub(called)))
}

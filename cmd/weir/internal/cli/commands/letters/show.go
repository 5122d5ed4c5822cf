package letters

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

func deadShowCommand() *cobra.Command {
	as, bodyOnly := cli.ForPeople, false
	cmd := &cobra.Command{
		Use:   "show SEQ",
		Short: "Show one dead letter with its headers and body",
		Long: `Shows one dead letter: why it died, what was sent when and how the connection ended, the job's headers and
body, and the api's last answer, as text or else in hexadecimal. --body prints only the body, byte for byte.`,
		Example: "  weir dead show 17\n  weir dead show 17 --body > order.json",
		Args:    cli.Takes("SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := deadview.ParseSeq(args[0])
			if err != nil {
				return err
			}
			if as == cli.AsJSON && bodyOnly {
				return cli.Usage(errors.New("--json and --body exclude each other"))
			}
			c, err := connect.Dial()
			if err != nil {
				return err
			}
			defer c.Close()
			store, err := deadview.Open(cmd.Context(), c)
			if err != nil {
				return err
			}
			k, err := store.Letter(cmd.Context(), seq)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			switch {
			case bodyOnly && k.BodyLeftOut:
				return cli.NotFound(fmt.Errorf("the body of dead letter %d is not kept: %s", k.Seq, noBody))
			case bodyOnly:
				return cli.WriteBytes(out, k.Body)
			case as == cli.AsJSON:
				return cli.PrintJSON(out, deadview.Whole(k))
			}
			return printLetter(out, k, time.Now())
		},
	}
	as.Add(cmd.Flags(), "one JSON object")
	cmd.Flags().BoolVar(&bodyOnly, "body", false, "print the raw body only")
	return cmd
}

// noBody says why a letter may lack the body of its job.
const noBody = "it was too large, or was lost with the store of its queue"

func printLetter(out io.Writer, k *deadletter.Kept, now time.Time) error {
	t := &cli.Table{}
	t.Row("letter", fmt.Sprintf("%d, stored %s (%s ago)", k.Seq, cli.ClockTime(k.Stored), cli.Brief(now.Sub(k.Stored))))
	t.Row("api", cmp.Or(k.API, "-"))
	if k.AskedAPI != "" {
		t.Row("asked for", k.AskedAPI+", which was not configured")
	}
	t.Row("key", cmp.Or(k.Key, "-"))
	t.Row("job", cmp.Or(k.JobID, "-"))
	t.Row("reason", string(k.Reason))
	t.Row("detail", k.Detail)
	status := strconv.Itoa(k.Status)
	if k.Status == 0 {
		status = "none: the api gave no answer, or was not called"
	}
	t.Row("status", status)
	t.Row("billed", string(k.Billed))
	t.Row("attempts", strconv.Itoa(k.Attempts))
	t.Row("redrives", strconv.Itoa(k.Redrives))
	if k.Refusals > 1 {
		t.Row("refusals", fmt.Sprintf("%d when the letter was written: its producer tries again and again", k.Refusals))
	}
	addCall(t, k.Call)
	if k.Operation != "" {
		t.Row("operation", cli.Visible(k.Operation))
	}
	headers := deadview.JobHeaders(k.Header)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			t.Row("header", cli.Visible(name)+": "+cli.Visible(value))
		}
	}
	body := cli.Count(k.Size, "byte")
	if k.BodyLeftOut {
		body = "not kept: " + noBody
	}
	t.Row("body", body)
	if err := t.PrintWhole(out); err != nil {
		return err
	}
	if err := printBytes(out, k.Body); err != nil {
		return err
	}
	return printAnswer(out, k.Answer)
}

// printAnswer prints the api's last answer.
func printAnswer(out io.Writer, a *deadletter.Answer) error {
	if a == nil {
		return nil
	}
	t, kept := &cli.Table{}, cli.Count(len(a.Body), "byte")
	if a.Cut {
		kept = "the first " + kept + ": the answer was longer"
	}
	t.Row("answer", strconv.Itoa(a.Status))
	t.Row("content type", cmp.Or(a.ContentType, "-"))
	t.Row("body", kept)
	if _, err := fmt.Fprintln(out); err != nil {
		return fmt.Errorf("write the letter: %w", err)
	}
	if err := t.PrintWhole(out); err != nil {
		return err
	}
	return printBytes(out, a.Body)
}

// printBytes prints a body after an empty line: as text, or in hexadecimal if it is not text.
func printBytes(out io.Writer, body []byte) error {
	text := string(body)
	if !deadview.IsText(body) {
		text = hex.Dump(body)
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if _, err := fmt.Fprint(out, "\n", text); err != nil {
		return fmt.Errorf("write the letter: %w", err)
	}
	return nil
}

// addCall adds a letter's last call to a table.
func addCall(t *cli.Table, c *deadletter.LastCall) {
	if c == nil {
		return
	}
	if !c.Started.IsZero() {
		text := "began " + cli.ClockTime(c.Started)
		if c.CutBy == deadletter.CutByDeath && c.Bytes < 0 {
			text = "was to begin after " + cli.ClockTime(c.Started)
		}
		t.Row("last call", text)
	}
	if c.Bytes >= 0 {
		text := cli.Count(c.Bytes, "byte")
		if c.Connection != "" {
			text += fmt.Sprintf(" over a %s connection", c.Connection)
		}
		if !c.Wrote.IsZero() {
			text += ", the last at " + cli.ClockTime(c.Wrote)
		}
		t.Row("sent", text)
	}
	if c.CutBy != "" {
		text := "by " + cutText(c.CutBy)
		if !c.Ended.IsZero() {
			text += " at " + cli.ClockTime(c.Ended)
		}
		t.Row("cut", text)
	}
}

func cutText(by deadletter.Cutter) string {
	switch by {
	case deadletter.CutByTimeout:
		return "weir, when the api's timeout had passed"
	case deadletter.CutByReset:
		return "a reset: the api or something on the way broke the connection off"
	case deadletter.CutByClose:
		return "the api, which closed the connection without an answer"
	case deadletter.CutByDeath:
		return "the end of the weir that called"
	case deadletter.CutByNetwork:
		return "the network"
	}
	return string(by)
}

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"weir/deadletter"
)

func deadShowCommand() *cobra.Command {
	as, bodyOnly := forPeople, false
	cmd := &cobra.Command{
		Use:   "show SEQ",
		Short: "Show one dead letter with its headers and body",
		Long: `Shows one dead letter: why it died, the headers its job brought, the job's body, and what the api answered last, as text or,
where it is none, in hexadecimal. --body prints nothing but the body, byte for byte.`,
		Example: "  weir dead show 17\n  weir dead show 17 --body > order.json",
		Args:    takes("SEQ"),
		RunE: func(cmd *cobra.Command, args []string) error {
			seq, err := strconv.ParseUint(args[0], 10, 64)
			if err != nil || seq == 0 {
				return usage(fmt.Errorf("%q is not the number of a dead letter; `weir dead ls` lists them", args[0]))
			}
			if as == asJSON && bodyOnly {
				return usage(errors.New("--json and --body exclude each other"))
			}
			c, err := dial()
			if err != nil {
				return err
			}
			defer c.Close()
			k, err := c.letter(cmd, seq)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			switch {
			case bodyOnly:
				if _, err := out.Write(k.Body); err != nil {
					return fmt.Errorf("write the body: %w", err)
				}
				return nil
			case as == asJSON:
				letter := letterAsJSON(&k)
				letter.Headers, letter.bodyJSON, letter.Answer = jobHeaders(k.Header), jsonBody(k.Body), answerAsJSON(k.Answer)
				return printJSON(out, letter)
			}
			return printLetter(out, &k, time.Now())
		},
	}
	as.add(cmd.Flags(), "one JSON object")
	cmd.Flags().BoolVar(&bodyOnly, "body", false, "the raw body only")
	return cmd
}

func (c *connection) letter(cmd *cobra.Command, seq uint64) (deadletter.Kept, error) {
	b, err := c.browse(cmd.Context())
	if err != nil {
		return deadletter.Kept{}, err
	}
	k, err := b.Get(cmd.Context(), seq)
	if errors.Is(err, deadletter.ErrNoLetter) {
		return k, notFound(fmt.Errorf("there is no dead letter %d: it never was, or it was redriven, purged or too old", seq))
	}
	return k, c.explain(err)
}

func printLetter(out io.Writer, k *deadletter.Kept, now time.Time) error {
	t := &table{}
	t.row("letter", fmt.Sprintf("%d, stored %s (%s ago)", k.Seq, clockTime(k.Stored), brief(now.Sub(k.Stored))))
	t.row("api", orDash(k.API))
	if k.AskedAPI != "" {
		t.row("asked for", k.AskedAPI+", which was not configured")
	}
	t.row("key", orDash(k.Key))
	t.row("job", orDash(k.JobID))
	t.row("reason", string(k.Reason))
	t.row("detail", k.Detail)
	status := strconv.Itoa(k.Status)
	if k.Status == 0 {
		status = "none: the api gave no answer, or was not called"
	}
	t.row("status", status)
	t.row("billed", string(k.Billed))
	t.row("attempts", strconv.Itoa(k.Attempts))
	t.row("redrives", strconv.Itoa(k.Redrives))
	headers := jobHeaders(k.Header)
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		for _, value := range headers[name] {
			t.row("header", visible(name)+": "+visible(value))
		}
	}
	t.row("body", count(k.Size, "byte"))
	if err := t.whole(out); err != nil {
		return err
	}
	if err := printBytes(out, k.Body); err != nil {
		return err
	}
	return printAnswer(out, k.Answer)
}

// isText reports whether a terminal shows a body and obeys nothing in it.
func isText(body []byte) bool {
	return utf8.Valid(body) && strings.IndexFunc(string(body), func(r rune) bool {
		return !unicode.IsPrint(r) && !unicode.IsSpace(r)
	}) < 0
}

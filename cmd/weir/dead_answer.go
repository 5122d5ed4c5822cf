package main

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/letters"
	"weir/deadletter"
)

// printAnswer writes what the api answered, for people.
func printAnswer(out io.Writer, a *deadletter.Answer) error {
	if a == nil {
		return nil
	}
	t, kept := &cli.Table{}, cli.Count(len(a.Body), "byte")
	if a.Cut {
		kept = "the first " + kept + ": the answer was longer"
	}
	t.Row("answer", strconv.Itoa(a.Status))
	t.Row("content type", orDash(a.ContentType))
	t.Row("body", kept)
	if _, err := fmt.Fprintln(out); err != nil {
		return fmt.Errorf("write the letter: %w", err)
	}
	if err := t.PrintWhole(out); err != nil {
		return err
	}
	return printBytes(out, a.Body)
}

// printBytes writes a body below an empty line: as text, or in hexadecimal where it is none.
func printBytes(out io.Writer, body []byte) error {
	text := string(body)
	if !letters.IsText(body) {
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

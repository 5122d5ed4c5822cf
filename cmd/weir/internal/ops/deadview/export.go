package deadview

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
	"unicode/utf8"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/jobstory"
	"weir/deadletter"

	"github.com/nats-io/nats.go"
)

// Exported is a letter as it is exported: complete, so that an import restores it byte by byte. Seq is its sequence.
// Stored is when it was first stored; for an imported letter, by the server it came from.
type Exported struct {
	Seq     uint64              `json:"seq"`
	Stored  time.Time           `json:"stored"`
	Subject string              `json:"subject"`
	Headers map[string][]string `json:"headers"`
	// HeadersBase64 holds the headers with a value that is no text.
	HeadersBase64 map[string][][]byte `json:"headers_base64,omitempty"`
	jobstory.Body
}

// Export returns a letter in the form of an export.
func Export(k *deadletter.Kept) Exported {
	e := Exported{
		Seq: k.Seq, Stored: k.Stored.UTC(), Subject: k.Published, Headers: map[string][]string{}, Body: jobstory.BodyOf(k.Body),
	}
	if !k.Imported.IsZero() {
		e.Stored = k.Imported.UTC()
	}
	for name, values := range k.Header {
		if !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) }) {
			e.Headers[name] = values
			continue
		}
		if e.HeadersBase64 == nil {
			e.HeadersBase64 = map[string][][]byte{}
		}
		for _, v := range values {
			e.HeadersBase64[name] = append(e.HeadersBase64[name], []byte(v))
		}
	}
	return e
}

// Imported is the outcome of an import.
type Imported struct {
	DryRun  bool `json:"dry_run"`
	Letters int  `json:"letters"`
	Stored  int  `json:"stored"`
	Known   int  `json:"known_already"`
}

// ReadExported passes the letters of an export to take, in order, until take fails. A line may have at most mostLine
// bytes. The error names the number of the wrong letter in the file.
func ReadExported(in io.Reader, mostLine int, take func(line int, letter deadletter.Copy) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<16), mostLine)
	n := 0
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		n++
		letter, err := readExported(lines.Bytes())
		if err == nil {
			err = take(n, letter)
		}
		if err != nil {
			return fmt.Errorf("letter %d of the file: %w", n, err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("letter %d of the file: its line is longer than %d bytes, which no letter is: the file was not written by `weir dead export`", n+1, mostLine)
	} else if err != nil {
		return fmt.Errorf("read the letters: %w", err)
	}
	if n == 0 {
		return cli.NotFound(errors.New("there are no letters in the file"))
	}
	return nil
}

func readExported(line []byte) (deadletter.Copy, error) {
	var e Exported
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return deadletter.Copy{}, err
	}
	return e.Copy()
}

// Copy returns the letter in the form for an import.
func (e *Exported) Copy() (deadletter.Copy, error) {
	c := deadletter.Copy{Stored: e.Stored, Subject: e.Subject, Header: nats.Header{}}
	for name, values := range e.Headers {
		c.Header[name] = values
	}
	for name, values := range e.HeadersBase64 {
		if _, both := c.Header[name]; both {
			return c, fmt.Errorf("header %s occurs twice", name)
		}
		for _, v := range values {
			c.Header[name] = append(c.Header[name], string(v))
		}
	}
	switch {
	case e.Text != nil && e.Base64 != "":
		return c, errors.New("it has two bodies")
	case e.Text != nil:
		c.Body = []byte(*e.Text)
	default:
		body, err := base64.StdEncoding.DecodeString(e.Base64)
		if err != nil {
			return c, fmt.Errorf("its body: %w", err)
		}
		c.Body = body
	}
	return c, nil
}

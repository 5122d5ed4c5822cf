package letters

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"weir/cmd/weir/internal/timeline"
	"weir/deadletter"

	"github.com/nats-io/nats.go"
)

// Exported is a letter as it is exported: complete, so that it can be imported and is the same to the byte. Seq is where it stands; Stored
// is when it was stored first, of one that was imported by the server it came from.
type Exported struct {
	Seq     uint64              `json:"seq"`
	Stored  time.Time           `json:"stored"`
	Subject string              `json:"subject"`
	Headers map[string][]string `json:"headers"`
	// HeadersBase64 are those with a value that is no text.
	HeadersBase64 map[string][][]byte `json:"headers_base64,omitempty"`
	timeline.Body
}

// Export is a whole letter, to be exported.
func Export(k *deadletter.Kept) Exported {
	e := Exported{
		Seq: k.Seq, Stored: k.Stored.UTC(), Subject: k.Published, Headers: map[string][]string{}, Body: timeline.BodyOf(k.Body),
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

// Copy is an exported letter, to be imported.
func (e *Exported) Copy() (deadletter.Copy, error) {
	c := deadletter.Copy{Stored: e.Stored, Subject: e.Subject, Header: nats.Header{}}
	for name, values := range e.Headers {
		c.Header[name] = values
	}
	for name, values := range e.HeadersBase64 {
		if _, both := c.Header[name]; both {
			return c, fmt.Errorf("header %s stands there twice", name)
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

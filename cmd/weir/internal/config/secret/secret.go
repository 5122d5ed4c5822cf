// Package secret keeps secrets out of everything that weir writes. A Template holds references to secrets, and only
// Resolve's result holds what they refer to. A Value shows itself by Reveal alone. A Scope says which references a
// process may resolve.
package secret

import (
	"encoding/json"
	"log/slog"
	"strconv"
)

// Value is a setting that must not be printed, such as a path of credentials or an address with a password. Only
// Reveal shows it.
type Value struct {
	text string
	// shown replaces the text in messages: an address without its credentials. If empty, String shows ***.
	shown string
}

// New returns a secret with what String shows of it; "" hides all of it.
func New(text, shown string) Value { return Value{text: text, shown: shown} }

// Reveal returns the setting itself.
func (s Value) Reveal() string { return s.text }

// IsSet reports whether the setting is not empty.
func (s Value) IsSet() bool { return s.text != "" }

// String returns an address without its credentials, *** for any other setting, and "" if the setting is empty.
func (s Value) String() string {
	if s.text != "" && s.shown == "" {
		return "***"
	}
	return s.shown
}

// GoString returns the text of String, quoted.
func (s Value) GoString() string { return strconv.Quote(s.String()) }

// MarshalJSON encodes the text of String.
func (s Value) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// LogValue returns the text of String.
func (s Value) LogValue() slog.Value { return slog.StringValue(s.String()) }

package config

import (
	"encoding/json"
	"log/slog"
	"strconv"
)

// Secret is a setting that must not be printed: a path of credentials, or an address that may carry a password. Only
// Reveal shows it.
type Secret struct {
	text string
	// shown replaces the text in messages: an address without its credentials. Empty: nothing is shown.
	shown string
}

// Reveal returns the setting itself.
func (s Secret) Reveal() string { return s.text }

// IsSet reports whether there is a setting.
func (s Secret) IsSet() bool { return s.text != "" }

// String shows an address without its credentials, *** for anything else that is set.
func (s Secret) String() string {
	if s.text != "" && s.shown == "" {
		return "***"
	}
	return s.shown
}

// GoString shows the same.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalJSON writes the same.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// LogValue logs the same.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

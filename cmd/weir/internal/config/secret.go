package config

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
)

// Secret is a setting that must not be printed, such as a path of credentials or an address with a password. Only
// Reveal shows it.
type Secret struct {
	text string
	// shown replaces the text in messages: an address without its credentials. If empty, String shows ***.
	shown string
}

// Reveal returns the setting itself.
func (s Secret) Reveal() string { return s.text }

// IsSet reports whether the setting is not empty.
func (s Secret) IsSet() bool { return s.text != "" }

// String returns an address without its credentials, *** for any other setting, and "" if the setting is empty.
func (s Secret) String() string {
	if s.text != "" && s.shown == "" {
		return "***"
	}
	return s.shown
}

// GoString returns the text of String, quoted.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// MarshalJSON encodes the text of String.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// LogValue returns the text of String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// SecretScope says which references to secrets this process may resolve for a configuration. Any NATS user with the
// right to apply a configuration could otherwise make weir read its variables and files, and send them to an address of
// that user's choice. A scope does not change after NewSecretScope. A nil scope allows every reference.
type SecretScope struct {
	env   map[string]bool
	files map[string]bool
	dirs  []string // with a slash at the end
}

// NewSecretScope returns a scope that allows the given names of variables and paths of directories or files, and every
// reference in own. own is the configuration file that the process was started with, or nil.
func NewSecretScope(allowed []string, own *Config) *SecretScope {
	s := &SecretScope{env: map[string]bool{}, files: map[string]bool{}}
	for _, text := range allowed {
		if filepath.IsAbs(text) {
			s.files[text] = true
			s.dirs = append(s.dirs, strings.TrimSuffix(text, "/")+"/")
		} else {
			s.env[text] = true
		}
	}
	if own == nil {
		return s
	}
	for _, r := range own.references {
		for _, p := range r.parts {
			s.env[p.env], s.files[p.file] = true, true
		}
	}
	return s
}

// reference is a place in a configuration that refers to secrets or files.
type reference struct {
	line    int
	path    string
	parts   []part
	resolve bool         // each part is a secret that must resolve
	check   func() error // reports whether weir can use the referenced values; nil: no check
}

// refer records that the configuration refers to secrets or files at v.
func (v value) refer(r reference) {
	r.line, r.path = v.line, v.path
	v.doc.references = append(v.doc.references, r)
}

// secret returns the kind of a text with references, which weir resolves each time it needs the text. check reports
// whether the present text can be used.
func secret(at *Template, words string, parse func(string) (Template, error), check func() error) kind {
	k := one(at, of[Template]{parse, Template.String, words, anyText})
	read := k.read
	k.read = func(v value, or string) texts {
		if read(v, or); v.node != nil {
			v.refer(reference{parts: at.parts, resolve: true, check: check})
		}
		return nil
	}
	return k
}

// MissingSecrets lists the references that scope does not allow, and those that do not resolve on this machine now. It
// does not read references that scope forbids.
func (c *Config) MissingSecrets(scope *SecretScope) []Problem {
	var problems []Problem
	for _, r := range c.references {
		problems = append(problems, r.missing(scope)...)
	}
	sortProblems(problems)
	return problems
}

func (r reference) missing(scope *SecretScope) (problems []Problem) {
	add := func(message, fix string) {
		problems = append(problems, Problem{Line: r.line, Path: r.path, Message: message, Fix: fix})
	}
	for _, p := range r.parts {
		if !scope.allows(p) {
			add(Template{parts: []part{p}}.String()+" is allowed neither by the file that weir was started with nor by WEIR_SECRETS",
				"name it in WEIR_SECRETS where weir serve runs, or in its own file")
			continue
		}
		if !r.resolve {
			continue
		}
		if _, err := p.resolve(); err != nil {
			add(err.Error(), "provide it where weir serve runs")
		}
	}
	if len(problems) == 0 && r.check != nil {
		if err := r.check(); err != nil {
			add(err.Error(), "provide it where weir serve runs")
		}
	}
	return problems
}

// allows reports whether weir may resolve a part. Paths are clean, so none climbs out of its directory.
func (s *SecretScope) allows(p part) bool {
	switch {
	case s == nil || p.literal != "":
		return true
	case p.env != "":
		return s.env[p.env]
	case s.files[p.file]:
		return true
	}
	for _, dir := range s.dirs {
		if strings.HasPrefix(p.file, dir) {
			return true
		}
	}
	return false
}

// secretNames reads WEIR_SECRETS: names of variables and absolute paths, separated by commas.
func secretNames(text string) ([]string, error) {
	var names []string
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		switch {
		case isVariable(word):
		case filepath.IsAbs(word) && filepath.Clean(word) != "/" && !strings.ContainsAny(word, "\x00\r\n"):
			word = filepath.Clean(word)
		default:
			return nil, refuse("write names of variables and full paths of directories or files, with commas between, as in CREDIT_TOKEN,/run/secrets",
				"%s is neither a variable's name nor the full path of a directory or file", quote(word))
		}
		names = append(names, word)
	}
	return names, nil
}

package config

import (
	"path/filepath"
	"strings"
)

// SecretScope says which references to secrets a configuration may resolve in this process. A configuration comes over
// NATS from any user that may apply one, and the variables and files are readable for weir's user. Without this bound,
// each such user could make weir send any of them to an address of the user's choice. A scope does not change after
// NewSecretScope; a nil one allows every reference.
type SecretScope struct {
	env   map[string]bool
	files map[string]bool
	dirs  []string // with a slash at the end
}

// NewSecretScope allows the given names of variables and paths of directories or files, and every reference in own: the
// file that the process was started with. own is nil if there is none.
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
	own.eachReference(func(p part) { s.env[p.env], s.files[p.file] = true, true })
	return s
}

// eachReference calls do with every part that may refer to a secret.
func (c *Config) eachReference(do func(p part)) {
	each := func(t Template) {
		for _, p := range t.parts {
			do(p)
		}
	}
	for _, a := range c.APIs {
		for _, h := range a.Headers {
			each(h.Value)
		}
		for _, file := range a.TLS.files() {
			do(part{file: file})
		}
	}
	for _, t := range c.HTTP.Tokens {
		each(t.Token)
	}
	if w := c.Notifications.Webhook; w != nil {
		each(w.URL)
		each(w.Secret)
	}
}

// allows reports whether a part may be resolved. Paths are clean, so none climbs out of its directory.
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

// secretNames reads what WEIR_SECRETS allows.
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

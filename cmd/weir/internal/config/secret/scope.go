package secret

import (
	"path/filepath"
	"strings"

	"weir/cmd/weir/internal/config/problem"
)

// Scope says which references to secrets this process may resolve for a configuration. Any NATS user with the
// right to apply a configuration could otherwise make weir read its variables and files, and send them to an address of
// that user's choice. A scope does not change after NewScope. A nil scope allows every reference.
type Scope struct {
	env   map[string]bool
	files map[string]bool
	dirs  []string // with a slash at the end
}

// NewScope returns a scope that allows the given names of variables and paths of directories or files, and every
// reference in own, which has those of the configuration file that the process was started with.
func NewScope(allowed []string, own []Part) *Scope {
	s := &Scope{env: map[string]bool{}, files: map[string]bool{}}
	for _, text := range allowed {
		if filepath.IsAbs(text) {
			s.files[text] = true
			s.dirs = append(s.dirs, strings.TrimSuffix(text, "/")+"/")
		} else {
			s.env[text] = true
		}
	}
	for _, p := range own {
		s.env[p.env], s.files[p.file] = true, true
	}
	return s
}

// Allows reports whether weir may resolve a part. Paths are clean, so none climbs out of its directory.
func (s *Scope) Allows(p Part) bool {
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

// Names reads WEIR_SECRETS: names of variables and absolute paths, separated by commas.
func Names(text string) ([]string, error) {
	var names []string
	for word := range strings.SplitSeq(text, ",") {
		word = strings.TrimSpace(word)
		switch {
		case isVariable(word):
		case filepath.IsAbs(word) && filepath.Clean(word) != "/" && !strings.ContainsAny(word, "\x00\r\n"):
			word = filepath.Clean(word)
		default:
			return nil,
				problem.Refuse("write names of variables and full paths of directories or files, with commas between, as in "+
					"CREDIT_TOKEN,/run/secrets",
					"%s is neither a variable's name nor the full path of a directory or file", problem.Quote(word))
		}
		names = append(names, word)
	}
	return names, nil
}

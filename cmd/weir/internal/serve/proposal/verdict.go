package proposal

import (
	"errors"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/problem"
	"weir/cmd/weir/internal/config/secret"
)

// Verdict lists the problems of a configuration.
type Verdict struct {
	File     string    `json:"file"`
	OK       bool      `json:"ok"`
	APIs     int       `json:"apis"`
	Problems []Problem `json:"problems"`
	Warnings []Problem `json:"warnings"`
	Notes    []Problem `json:"notes"` // correct, but worth knowing
}

// Problem is a mistake in a configuration, or a setting that is probably unintended.
type Problem struct {
	Line    int    `json:"line,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// Check parses a configuration as weir serve does, and returns all its problems at once. It looks for secrets on this
// machine, as far as scope allows. c is nil if the configuration is not valid.
func Check(file string, text []byte, scope *secret.Scope) (v Verdict, c *config.Config, err error) {
	c, err = config.Parse(text, config.Options{Name: file})
	var wrong *problem.Errors
	if err != nil && !errors.As(err, &wrong) {
		return v, nil, err
	}
	v = Verdict{File: file, OK: err == nil, Problems: []Problem{}, Warnings: []Problem{}, Notes: []Problem{}}
	if wrong != nil {
		for _, p := range wrong.Problems {
			v.Problems = append(v.Problems, Problem(p))
		}
		return v, nil, nil
	}
	v.APIs = len(c.APIs)
	for _, p := range append(append([]problem.Problem{}, c.Warnings...), c.MissingSecrets(scope)...) {
		v.Warnings = append(v.Warnings, Problem(p))
	}
	for _, p := range c.Notes() {
		v.Notes = append(v.Notes, Problem(p))
	}
	return v, c, nil
}

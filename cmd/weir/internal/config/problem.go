package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake in a file or the environment, and how to mend it.
type Problem struct {
	Line    int    // 1 is the file's first line; 0 for an environment variable
	Path    string // the field as in apis.sms.bucket.rate, or the variable's name
	Message string // what is wrong
	Fix     string // what to write instead
}

// String returns the problem without the file's name: "line 12: apis.sms.bucket.rate: ...".
func (p Problem) String() string {
	if p.Line > 0 {
		return fmt.Sprintf("line %d: %s", p.Line, p.text())
	}
	return p.text()
}

// In returns the problem in the format of compilers: "weir.yaml:12: apis.sms.bucket.rate: ...".
func (p Problem) In(file string) string {
	if p.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", file, p.Line, p.text())
	}
	return p.text()
}

func (p Problem) text() string {
	parts := make([]string, 0, 3)
	for _, part := range []string{p.Path, p.Message, p.Fix} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Errors holds all mistakes, in the order of the lines. Its text is one problem per line.
type Errors struct {
	File     string // the name the file is known by in messages
	Problems []Problem
}

// Error lists every problem, one per line.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.In(e.File)
	}
	return strings.Join(lines, "\n")
}

// valueError is a parser's error about a text that it refuses. The caller knows the place and makes a Problem of it.
type valueError struct {
	message string
	fix     string
}

func (e *valueError) Error() string { return Problem{Message: e.message, Fix: e.fix}.text() }

// refuse returns a valueError; message is a format for args, fix is used unchanged.
func refuse(fix, message string, args ...any) error {
	return &valueError{message: fmt.Sprintf(message, args...), fix: fix}
}

// problemOf returns the problem for a parser's error about the value at path.
func problemOf(path string, err error) Problem {
	var refused *valueError
	if errors.As(err, &refused) {
		return Problem{Path: path, Message: refused.message, Fix: refused.fix}
	}
	return Problem{Path: path, Message: err.Error()}
}

// quote shows a refused text in a message: at most 60 bytes of it, so that a pasted file does not fill the screen.
func quote(text string) string { return quoteAtMost(text, 60) }

func quoteAtMost(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}

func sortProblems(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

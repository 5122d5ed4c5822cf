// Package problem has mistakes in a file or the environment: what is wrong, where it stands, and how to mend it.
package problem

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

// Errors holds all problems of a file or the environment, in the order of the lines.
type Errors struct {
	File     string // the file's name in messages
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

// valueError is a parser's error about a text that it refuses. The caller knows where the text stands, and makes a
// Problem of the error.
type valueError struct {
	message string
	fix     string
}

func (e *valueError) Error() string { return Problem{Message: e.message, Fix: e.fix}.text() }

// Refuse returns a valueError. message is a format for args; fix is used as it is.
func Refuse(fix, message string, args ...any) error {
	return &valueError{message: fmt.Sprintf(message, args...), fix: fix}
}

// Of returns the problem for a parser's error about the value at path.
func Of(path string, err error) Problem {
	var refused *valueError
	if errors.As(err, &refused) {
		return Problem{Path: path, Message: refused.message, Fix: refused.fix}
	}
	return Problem{Path: path, Message: err.Error()}
}

// Quote quotes a refused text in a message. It shows at most 60 bytes, so that a pasted file does not fill the screen.
func Quote(text string) string { return QuoteAtMost(text, 60) }

// QuoteAtMost quotes a refused text in a message, and shows at most most bytes of it.
func QuoteAtMost(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return fmt.Sprintf("%q", text)
}

// Sort sorts problems by their lines.
func Sort(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

// Closest returns the candidate that a mistyped name most likely means, or "" if none is close. It allows one typing
// error per three letters, and at most two. A swap of neighbours counts as one error.
func Closest(name string, candidates []string) string {
	const longest = 64
	if len(name) > longest {
		return ""
	}
	best, bestDistance := "", 3
	for _, candidate := range candidates {
		d := typingErrors(strings.ToLower(name), strings.ToLower(candidate))
		if d < bestDistance && d*3 <= max(len(name), len(candidate)) {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// typingErrors returns the least number of insertions, deletions, replacements and swaps that turn a into b.
func typingErrors(a, b string) int {
	var before []int // the row two above, which a swap needs
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// Meant returns the fix for a name that is not in names: the closest one, or all of them.
func Meant(name string, names []string) string {
	if c := Closest(name, names); c != "" {
		return `did you mean "` + c + `"?`
	}
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) == 1 {
		return "it can only be " + sorted[0]
	}
	last := len(sorted) - 1
	return "it can be " + strings.Join(sorted[:last], ", ") + " or " + sorted[last]
}

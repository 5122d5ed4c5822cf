package ingest

import "strings"

// Subjects is a group of NATS subjects with one beginning. Only a constant can be one. Only names, each written as one
// token, and wildcards are appended to it. So no text from a request becomes part of a subject unescaped, and none
// makes a subject longer than a control line of NATS, at which the server would close the connection.
type Subjects string

// usualSubject is the longest subject, in bytes, that Of builds with only one allocation.
const usualSubject = 64

// Of returns the subject below s for the given names, of which there may be none.
func (s Subjects) Of(names ...string) string {
	subject := make([]byte, 0, usualSubject)
	subject = append(subject, s...)
	for i, name := range names {
		if i > 0 {
			subject = append(subject, '.')
		}
		subject = append(subject, Token(name)...)
	}
	return string(subject)
}

// Below returns the pattern of all subjects that have these names after s and more tokens after them. Without names it
// matches all subjects of s.
func (s Subjects) Below(names ...string) string {
	if len(names) == 0 {
		return string(s) + ">"
	}
	return s.Of(names...) + ".>"
}

// NoName matches, in Match, the token for no name. It is longer than any name.
var NoName = strings.Repeat(NoToken, MaxKeyBytes+1)

// Match returns the pattern of all subjects that have exactly these names after s. An empty name matches any token, and
// NoName matches the token for no name. NoToken is a name like any other: a key may be called so.
func (s Subjects) Match(names ...string) string {
	tokens := make([]string, len(names))
	for i, name := range names {
		switch name {
		case "":
			tokens[i] = "*"
		case NoName:
			tokens[i] = NoToken
		default:
			tokens[i] = Token(name)
		}
	}
	return string(s) + strings.Join(tokens, ".")
}

// Each returns the pattern of all subjects that have the given number of tokens after s.
func (s Subjects) Each(tokens int) string {
	return string(s) + strings.TrimSuffix(strings.Repeat("*.", tokens), ".")
}

// Names returns the names that a subject has after s. It reports false if Of would not return that subject for so many
// names.
func (s Subjects) Names(subject string, tokens int) (names []string, ok bool) {
	rest, ok := strings.CutPrefix(subject, string(s))
	if !ok {
		return nil, false
	}
	for token := range strings.SplitSeq(rest, ".") {
		name, err := ParseToken(token)
		if err != nil {
			return nil, false
		}
		names = append(names, name)
	}
	return names, len(names) == tokens
}

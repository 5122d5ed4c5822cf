package ingest

import "strings"

// Subjects are the subjects of NATS that begin alike. Only a constant can be one: what is appended to it is a name, written as one token,
// or a wildcard. So no text that a request brings along becomes a part of a subject as it is, or makes one longer than a control line of
// NATS, at which the server closes the connection.
type Subjects string

// usualSubject is how many bytes of a subject need no second allocation.
const usualSubject = 64

// Of returns the subject below s of some names, or of none.
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

// Below returns the pattern of all subjects that have some names after s and tokens behind those; without names, of all subjects of s.
func (s Subjects) Below(names ...string) string {
	if len(names) == 0 {
		return string(s) + ">"
	}
	return s.Of(names...) + ".>"
}

// Match returns the pattern of all subjects that have these names after s, in which an empty name matches any token, and NoToken the token of
// no name.
func (s Subjects) Match(names ...string) string {
	tokens := make([]string, len(names))
	for i, name := range names {
		switch name {
		case "":
			tokens[i] = "*"
		case NoToken:
			tokens[i] = NoToken
		default:
			tokens[i] = Token(name)
		}
	}
	return string(s) + strings.Join(tokens, ".")
}

// Each returns the pattern of all subjects that have so many tokens after s.
func (s Subjects) Each(tokens int) string {
	return string(s) + strings.TrimSuffix(strings.Repeat("*.", tokens), ".")
}

// Names returns the names that a subject has after s; false if it is none that Of returns for so many.
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

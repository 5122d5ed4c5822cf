package ingest

import "strings"

// Subjects is the prefix of a group of NATS subjects. It must be a constant. The methods append only wildcards and
// names, each name as one token. So no text from a request gets into a subject unescaped, and no subject exceeds NATS's
// longest control line, at which the server would close the connection.
type Subjects string

// usualSubject is the longest subject, in bytes, that Of builds with only one allocation.
const usualSubject = 64

// Of returns the subject with these names after s. Without names it is s itself.
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

// Below returns a pattern: these names after s, then at least one more token. Without names it matches all subjects of
// s.
func (s Subjects) Below(names ...string) string {
	if len(names) == 0 {
		return string(s) + ">"
	}
	return s.Of(names...) + ".>"
}

// NoName stands for "no name" in a call of Match. It is longer than any name.
var NoName = strings.Repeat(NoToken, MaxKeyBytes+1)

// Match returns a pattern: exactly these names after s. An empty name matches any token, and NoName matches NoToken.
// The name "_" is an ordinary name, because a key may be "_".
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

// Each returns the pattern of all subjects with this many tokens after s.
func (s Subjects) Each(tokens int) string {
	return string(s) + strings.TrimSuffix(strings.Repeat("*.", tokens), ".")
}

// Names returns the names after s in a subject. ok is false unless Of would build the subject from this many names.
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

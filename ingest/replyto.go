package ingest

import (
	"errors"
	"slices"
	"strings"

	"weir/ingest/client"
)

// inboxes begins the subjects on which NATS clients take answers, unless they are told otherwise.
const inboxes = "_INBOX."

// rolesOfOthers are the prefixes of the inboxes that deploy/nats gives to those who are no producers: who could have weir speak there
// could answer their questions.
var rolesOfOthers = []string{"_INBOX.worker", "_INBOX.operator", "_INBOX.viewer", "_INBOX.mover"}

// endsOnly is, below the prefix of any role, where nothing but the ends of jobs is waited for: who has weir speak there can do no more
// than tell a false one, to whoever showed him the subject.
const endsOnly = client.EndsOnly

// EndsInbox makes an inbox of a client one for the ends of jobs alone, which the intake takes from every role.
func EndsInbox(inbox string) string { return client.EndsInbox(inbox) }

// ReplySubjects says where jobs may have their ends told, by Weir-Reply-To. The zero value is what holds where nothing is configured.
type ReplySubjects struct {
	// Open are patterns of subjects, with * and > as in NATS; none: _INBOX.>
	Open []string
	// Inbox is the prefix of weir's own inboxes where it has one of its own, which no producer is to write to.
	Inbox string
}

// check refuses a subject that is not open. A wildcard opens nobody else's inboxes: only a pattern that names their prefix does.
func (r ReplySubjects) check(subject string) error {
	open := r.Open
	if len(open) == 0 {
		open = []string{inboxes + ">"}
	}
	theirs := rolesOfOthers
	if strings.HasPrefix(r.Inbox, inboxes) {
		theirs = append(slices.Clone(theirs), r.Inbox)
	}
	for _, pattern := range open {
		if matches(pattern, subject) && !slices.ContainsFunc(theirs, func(prefix string) bool {
			rest, inside := strings.CutPrefix(subject, prefix+".")
			return inside && !strings.HasPrefix(rest, endsOnly) && !strings.HasPrefix(pattern, prefix+".")
		}) {
			return nil
		}
	}
	return errors.New("weir may not speak on that subject: take an inbox of your own, or have the subject added to reply_to in weir's configuration")
}

// matches reports whether a subject is one of a pattern's.
func matches(pattern, subject string) bool {
	tokens := strings.Split(subject, ".")
	for i, token := range strings.Split(pattern, ".") {
		switch {
		case i >= len(tokens):
			return false
		case token == ">":
			return true
		case token != "*" && token != tokens[i]:
			return false
		}
	}
	return strings.Count(pattern, ".")+1 == len(tokens)
}

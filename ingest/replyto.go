package ingest

import (
	"errors"
	"slices"
	"strings"

	"weir/ingest/client"
)

// inboxes begins the subjects on which NATS clients receive answers by default.
const inboxes = "_INBOX."

// rolesOfOthers are the inbox prefixes that deploy/nats gives to roles other than producers. If a producer could name
// such an inbox in Weir-Reply-To, it could forge answers to the requests of those roles.
var rolesOfOthers = []string{"_INBOX.worker", "_INBOX.operator", "_INBOX.viewer", "_INBOX.mover"}

// endsOnly marks, below any role's prefix, an inbox that receives only the ends of jobs. A producer that names a
// foreign one can only forge an end, and only if the inbox's owner told it the subject.
const endsOnly = client.EndsOnly

// EndsInbox returns an inbox that receives only the ends of jobs. The intake accepts such an inbox from every role.
func EndsInbox(inbox string) string { return client.EndsInbox(inbox) }

// ReplySubjects says which subjects jobs may name in Weir-Reply-To. The zero value is the default of the configuration.
type ReplySubjects struct {
	// Open are patterns of subjects, with * and > as in NATS. If empty: _INBOX.>
	Open []string
	// Inbox is the prefix of weir's own inboxes, if it has one. Producers must not write to it.
	Inbox string
}

// check refuses a subject that no pattern opens. A pattern opens the inboxes of another role only if it names their
// prefix; a wildcard does not.
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

// matches reports whether a subject matches a pattern.
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

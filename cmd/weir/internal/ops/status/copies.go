package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/serve/admin"
)

// catchesUp is how long a NATS server may lack copies until that is a problem. Up to then it is a warning, because a
// server that was only restarted catches up by itself.
const catchesUp = 10 * time.Minute

// lack notes a replica's report of a server that lacks copies. Replicas look at different times, so their reports of
// one server differ: the one with the most streams is kept, with the earliest time of all.
func (s *Status) lack(l admin.Lacking) {
	i := slices.IndexFunc(s.lacking, func(have admin.Lacking) bool { return have.Server == l.Server })
	if i < 0 {
		s.lacking = append(s.lacking, l)
		return
	}
	have := &s.lacking[i]
	since := have.Since
	if l.Since.Before(since) {
		since = l.Since
	}
	if l.Count > have.Count {
		*have = l
	}
	have.Since = since
}

// judgeCopies adds a warning, and after catchesUp a problem, about each server that lacks copies.
func (s *Status) judgeCopies() {
	slices.SortFunc(s.lacking, func(a, b admin.Lacking) int { return cmp.Compare(a.Server, b.Server) })
	for _, l := range s.lacking {
		p := Problem{copiesText(l), copiesFix(l)}
		if s.At.Sub(l.Since) < catchesUp {
			s.Warnings = append(s.Warnings, p)
		} else {
			s.Problems = append(s.Problems, p)
		}
	}
}

// copiesText says which copies a server lacks.
func copiesText(l admin.Lacking) string {
	var streams []string
	for _, c := range l.Streams {
		text := fmt.Sprintf("%s has %d of %d", cli.Visible(c.Stream), c.Current, c.Copies)
		if c.Lag > 0 {
			text += fmt.Sprintf(" (its own is behind by %d)", c.Lag)
		}
		streams = append(streams, text)
	}
	if more := l.Count - len(l.Streams); more > 0 {
		streams = append(streams, fmt.Sprintf("and %d more", more))
	}
	who := "NATS server " + cli.Visible(l.Server)
	switch {
	case l.Server == "":
		who = "the NATS cluster has no server for a copy"
	case l.Offline:
		who += ", which the others do not reach, lacks a current copy"
	default:
		who += " lacks a current copy"
	}
	return fmt.Sprintf("%s of %s since %s: %s", who, cli.Count(l.Count, "stream"), cli.ClockTime(l.Since), strings.Join(streams, ", "))
}

// copiesFix says how a server gets its copies again.
func copiesFix(l admin.Lacking) string {
	const emptied = "stop it, empty its store, and start it again: it then copies every stream from the others. " +
		"Never do that to two servers at once"
	switch {
	case l.Server == "":
		return "let the cluster have as many servers with JetStream as the streams have copies"
	case l.Offline:
		return "start it, or mend its connection to the others: it then catches up by itself within minutes. If it does not: " + emptied
	}
	return "if it was just restarted, it catches up by itself within minutes. If it does not: " + emptied
}

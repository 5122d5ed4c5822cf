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

// lack notes a replica's report of a server that lacks copies, or of streams without a leader. Replicas look at
// different times, so their reports of one server differ: the one with the most streams is kept, with the earliest time
// of all, and with what makes it unsafe to empty the server's store.
func (s *Status) lack(l admin.Lacking) {
	i := slices.IndexFunc(s.lacking, l.Same)
	if i < 0 {
		s.lacking = append(s.lacking, l)
		return
	}
	have := s.lacking[i]
	most, least := have, l
	if l.Count > have.Count {
		most, least = l, have
	}
	if least.Since.Before(most.Since) {
		most.Since = least.Since
	}
	most.Server, most.Peer = cmp.Or(most.Server, least.Server), cmp.Or(most.Peer, least.Peer)
	most.Behind, most.Others = max(most.Behind, least.Behind), most.Others || least.Others
	most.Offline = most.Offline || least.Offline
	s.lacking[i] = most
}

// electionEnds is how long streams may have no leader until that is a problem. After a server was killed, the others
// elect leaders in one round or two, of up to nine seconds each.
const electionEnds = 30 * time.Second

// judgeCopies adds a warning about streams without a leader, and about each server that lacks copies. After
// electionEnds or admin.CatchesUp that is a problem.
func (s *Status) judgeCopies() {
	slices.SortFunc(s.lacking, func(a, b admin.Lacking) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Peer, b.Peer), cmp.Compare(copiesText(a), copiesText(b)))
	})
	for _, l := range s.lacking {
		age := s.At.Sub(l.Since)
		young := age < admin.CatchesUp
		p := Problem{copiesText(l), copiesFix(l, len(s.lacking) == 1, young)}
		if l.Leaderless && age < electionEnds || !l.Leaderless && young {
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
		text := cli.Visible(c.Stream)
		if c.Copies > 0 {
			text += fmt.Sprintf(" has %d of %d", c.Current, c.Copies)
		}
		if c.Lag > 0 {
			text += fmt.Sprintf(" (its own is behind by %d)", c.Lag)
		}
		streams = append(streams, text)
	}
	if more := l.Count - len(l.Streams); more > 0 {
		streams = append(streams, fmt.Sprintf("and %d more", more))
	}
	since := fmt.Sprintf("since %s: %s", cli.ClockTime(l.Since), strings.Join(streams, ", "))
	server := "NATS server " + cli.Visible(l.Server)
	if l.Server == "" {
		server = "a NATS server whose name is not known, " + cli.Visible(l.Peer) + ","
	}
	switch {
	case l.Leaderless:
		return fmt.Sprintf("no leader has answered for %s %s", cli.Count(l.Count, "stream"), since)
	case l.Server == "" && l.Peer == "":
		return fmt.Sprintf("the NATS cluster has no server for a copy of %s %s", cli.Count(l.Count, "stream"), since)
	case l.Offline:
		server = strings.TrimSuffix(server, ",") + ", which other servers do not reach,"
	}
	return fmt.Sprintf("%s lacks a current copy of %s %s", server, cli.Count(l.Count, "stream"), since)
}

// copiesFix says how a server gets its copies again. alone says that no other server lacks any, and all streams have
// leaders; young says that copies are missing for less than admin.CatchesUp. copiesFix advises to empty a store only if
// no other server lacks copies, because that store may have the last current copy of something. It says so only when
// the copies have been missing for long: for minutes NATS does not say that a server is away, and a replica that was
// just started has not looked at all streams.
func copiesFix(l admin.Lacking, alone, young bool) string {
	const restarted = "start it if it does not run, or mend its connection to the others: it then catches up by itself within minutes. " +
		"If it does not, "
	switch {
	case l.Leaderless:
		return "start the NATS servers that do not run, and mend the connections between them: a stream has a leader while " +
			"more than half of the servers with its copies reach each other. Empty no server's store meanwhile"
	case l.Server == "" && l.Peer == "":
		return "let the cluster have as many servers with JetStream as the streams have copies"
	case l.Offline:
		return "start it, or mend its connection to the others: it then catches up by itself"
	case l.Behind > 0:
		return "wait while the numbers fall by which it is behind; if they do not fall, look at its disk, its network and its log. " +
			"Do not empty its store"
	case !alone || l.Others:
		return restarted + "do not empty its store now, because not only this server lacks copies: first let the others have theirs"
	}
	if young {
		return restarted + "look at its log, and do not empty its store yet"
	}
	return restarted + "look at its log. If the log says that it could not create a stream for another reason than a corrupt snapshot, " +
		"mend that reason, such as no room or a limit, and restart it. If the log says \"snapshot corrupt\", and the /healthz of every " +
		"other NATS server says ok: stop it, empty its store, start it again, and touch no other server before its own /healthz says ok. It then copies " +
		"from the others every stream of which they have a copy; every other stream in its store is lost"
}

package doctor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go/jetstream"
)

// durability says what a power cut of an external server or cluster would lose. of is weir's own stream, nil if it is
// not known. The durability of the server inside, and of that inside another weir, is a variable of the weir that runs
// it.
func (e *examination) durability(ctx context.Context, domain string, of *jetstream.StreamInfo) {
	if e.Settings.Embedded() {
		return
	}
	conn := e.Connection.Conn
	if connect.AskInside(ctx, conn, e.Connection.Denied) != (connect.Inside{}) {
		e.fine("the NATS server at %s is the one inside another weir: its WEIR_DURABILITY says what a power cut loses", e.Connection.At)
		return
	}
	copies, own := 0, []string(nil)
	if of != nil {
		copies, own = of.Config.Replicas, connect.ServersOf(of.Cluster)
	}
	servers, missing, err := connect.AskSyncing(ctx, conn, e.Connection.Denied, domain, own)
	switch {
	case errors.Is(err, connect.ErrMayNotAsk), errors.Is(err, connect.ErrOthers):
		e.watch("on the servers that store weir's streams, give weir's account the import and this user the right, as deploy/nats/accounts.conf does; "+
			"or run weir doctor as an operator, or ask there as a user of the system account: nats server request jetstream. If it is the server inside another weir, see its WEIR_DURABILITY",
			"whether a power cut would lose anything is not known: %v (publish to %q, imported from the system account)", err, connect.SyncRight)
		if version := conn.ConnectedServerVersion(); !connect.Untested(version) && connect.KnownLosses(version) != "" {
			e.watch("upgrade the servers to NATS "+connect.SyncedServer+" or later", "the NATS server at %s is version %s. If it has sync_interval: always: %s",
				e.Connection.At, version, connect.KnownLosses(version))
		}
		return
	case err != nil:
		e.watch("look at the servers' logs, and run weir doctor again", "the NATS servers do not say how they sync: %v", err)
		return
	}
	e.syncing(servers, missing, copies)
}

// syncing says what a power cut would lose on servers that sync in this way. missing is how many more servers there
// are; copies is how many copies weir's streams have, 0 if that is not known.
func (e *examination) syncing(servers []connect.Syncing, missing, copies int) {
	var late, names, untested []string
	every := time.Duration(0)
	older := map[string][]string{} // the servers that sync every write, by a version on which that is not enough
	for _, s := range servers {
		names = append(names, s.Server)
		switch {
		case !s.Always:
			late, every = append(late, s.Server), max(every, s.Every)
		case connect.Untested(s.Version):
			untested = append(untested, s.Version)
		case connect.KnownLosses(s.Version) != "":
			older[s.Version] = append(older[s.Version], s.Server)
		}
	}
	if missing > 0 {
		e.watch("start them, or look at their logs", "%d of %s with JetStream did not say how they sync", missing, cli.Count(missing+len(servers), "NATS server"))
	}
	if len(late) > 0 {
		loses := "a power cut may lose"
		switch {
		case copies == 1:
			loses = "a power cut of one that holds a stream loses"
		case copies > 1:
			loses = "a power cut of several that hold a copy of a stream, or of one while another is behind or cut off, loses"
		}
		e.watch("set jetstream { sync_interval: always } on every server (NATS "+connect.SyncedServer+" or later)",
			"%s: NATS syncs every %s, and %s up to that much: accepted jobs, and marks of calls, so that weir may repeat calls",
			strings.Join(late, ", "), cli.Brief(every), loses)
	}
	for _, version := range slices.Sorted(maps.Keys(older)) {
		e.watch("upgrade to NATS "+connect.SyncedServer+" or later", "%s: NATS %s has sync_interval: always, but %s",
			strings.Join(older[version], ", "), version, connect.KnownLosses(version))
	}
	if len(late) == 0 && len(older) == 0 {
		lost := "a power cut loses nothing that was accepted"
		switch slices.Sort(untested); {
		case missing > 0:
			lost = "what the others do is not known"
		case len(untested) > 0:
			lost = fmt.Sprintf("no loss is known of NATS %s, but weir is tested with %s", strings.Join(slices.Compact(untested), ", "), connect.SyncedServer)
		}
		e.fine("%s: NATS syncs every write before it acknowledges it (sync_interval: always); %s", strings.Join(names, ", "), lost)
	}
}

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
)

// durability says what a power cut of an external server or cluster would lose. copies is how many copies weir's
// streams have, 0 if that is not known. The durability of the server inside is a variable of weir's own.
func (e *examination) durability(ctx context.Context, domain string, copies int) {
	if e.Settings.Embedded() {
		return
	}
	servers, missing, err := connect.AskSyncing(ctx, e.Connection.Conn, e.Connection.Denied, domain)
	switch {
	case errors.Is(err, connect.ErrMayNotAsk):
		e.watch("give this account the import and this user the right, as deploy/nats/accounts.conf does; or ask as a user of the system account: nats server request jetstream",
			"whether a power cut would lose anything is not known: this user may not ask the NATS servers how they sync (publish to %q, imported from the system account)", connect.SyncRight)
		if losses := connect.KnownLosses(e.Connection.Conn.ConnectedServerVersion()); losses != "" {
			e.watch("upgrade the servers to NATS "+connect.SyncedServer+" or later", "the NATS server at %s is version %s. If it has sync_interval: always: %s",
				e.Connection.At, e.Connection.Conn.ConnectedServerVersion(), losses)
		}
		return
	case err != nil:
		e.watch("look at the servers' logs, and run weir doctor again", "the NATS servers do not say how they sync: %v", err)
		return
	}
	if missing > 0 {
		e.watch("start them, or look at their logs", "%d of %s with JetStream did not say how they sync", missing, cli.Count(missing+len(servers), "NATS server"))
	}
	e.syncing(servers, copies)
}

// syncing says what a power cut would lose on servers that sync in this way.
func (e *examination) syncing(servers []connect.Syncing, copies int) {
	var late, names []string
	every := time.Duration(0)
	older := map[string][]string{} // the servers that sync every write, by a version on which that is not enough
	for _, s := range servers {
		names = append(names, s.Server)
		switch {
		case !s.Always:
			late, every = append(late, s.Server), max(every, s.Every)
		case connect.KnownLosses(s.Version) != "":
			older[s.Version] = append(older[s.Version], s.Server)
		}
	}
	if len(late) > 0 {
		whose, fix := "a power cut of one that holds a stream", "set jetstream { sync_interval: always } on every server (NATS "+connect.SyncedServer+" or later)"
		if copies > 1 {
			whose = fmt.Sprintf("a power cut of all that hold the %d copies of a stream", copies)
			fix += ", or see to it that they never lose power together"
		}
		e.watch(fix, "%s: NATS syncs every %s, and %s loses up to that much: accepted jobs, and marks of calls, so that weir may repeat calls",
			strings.Join(late, ", "), cli.Brief(every), whose)
	}
	for _, version := range slices.Sorted(maps.Keys(older)) {
		e.watch("upgrade to NATS "+connect.SyncedServer+" or later", "%s: NATS %s has sync_interval: always, but %s",
			strings.Join(older[version], ", "), version, connect.KnownLosses(version))
	}
	if len(late) == 0 && len(older) == 0 {
		e.fine("%s: NATS syncs every write before it acknowledges it (sync_interval: always); a power cut loses nothing that was accepted", strings.Join(names, ", "))
	}
}

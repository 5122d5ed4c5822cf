package ownership

import (
	"maps"
	"slices"
	"time"

	"weir/bucket/lease"
	"weir/bucket/queue"
)

// peer is a member as this replica sees it.
type peer struct {
	lease.Member
	revision uint64
	seen     time.Time // when its revision was first seen
	heard    bool      // it has renewed while this replica looked
	gone     bool      // its process is known to have ended
}

// watchBegins notes that a new watch begins, which first shows all that the registry holds.
func (o *state) watchBegins() {
	o.complete = false
	clear(o.again)
}

// see applies one thing that a watch shows: a member, a claim, or the note that the watch has now shown everything that
// the registry held when the watch began.
func (o *state) see(s lease.Sighting, now time.Time) {
	switch {
	case s.Session != "":
		o.noteAgain(s.Session)
		o.seeMember(s, now)
	case s.Partition != nil:
		o.seeClaim(*s.Partition, ownerClaim{s.Owner, s.Revision})
	default:
		o.complete, o.targets = true, nil
		// Entries that the new watch did not show are gone. If a claim names a session without an entry, the session
		// must be expelled before the partition is taken.
		maps.DeleteFunc(o.members, func(session string, _ *peer) bool { return !o.seenAgain(session) })
		maps.DeleteFunc(o.claims, func(p lease.PartitionID, _ ownerClaim) bool { return !o.seenAgain(claimName(p)) })
	}
}

// seeClaim notes which session owns a partition. Usually the claim with the highest revision counts. But servers can
// lose the registry's last writes in a power cut. Then the registry has an older claim, or uses a revision again. So
// the first claim that a new watch shows counts, whatever its revision. A server that lags shows an older claim too,
// but then the newest claim follows before plan acts. Another session's claim also counts if its revision is higher
// than the one that our claim replaced, and not higher than ours: only a registry that lost writes can have accepted
// it.
func (o *state) seeClaim(p lease.PartitionID, c ownerClaim) {
	first := !o.complete && !o.seenAgain(claimName(p))
	o.noteAgain(claimName(p))
	h := o.held[p]
	if h == nil && c.owner == o.self {
		h = &holding{}
		o.held[p] = h // so that plan releases it, or takes it
	}
	instead := h != nil && c.owner != o.self && h.replaced < c.revision && c.revision <= h.revision
	if first || instead || c.revision > o.claims[p].revision {
		o.claims[p] = c
	}
}

// wrote notes a claim or a release that this replica wrote.
func (o *state) wrote(p lease.PartitionID, c ownerClaim) {
	if c.revision > o.claims[p].revision {
		o.noteAgain(claimName(p)) // the first claim that a new watch shows may be older
		o.claims[p] = c
	}
}

func claimName(p lease.PartitionID) string { return queue.StreamName(p.API, p.Number) }

func (o *state) noteAgain(key string) {
	if !o.complete {
		o.again[key] = struct{}{}
	}
}

func (o *state) seenAgain(key string) bool {
	_, ok := o.again[key]
	return ok
}

func (o *state) seeMember(s lease.Sighting, now time.Time) {
	old := o.members[s.Session]
	switch _, over := o.ended[s.Session]; {
	case s.Member == nil:
		o.end(s.Session)
	case over || old != nil && s.Revision <= old.revision:
	case old == nil:
		o.members[s.Session] = &peer{Member: *s.Member, revision: s.Revision, seen: now, heard: s.Session == o.self}
		o.targets = nil
	default:
		if old.Leaving != s.Member.Leaving || !maps.Equal(old.Partitions, s.Member.Partitions) || !slices.Equal(old.CutOff, s.Member.CutOff) {
			o.targets = nil
		}
		old.Member, old.revision, old.seen, old.heard = *s.Member, s.Revision, now, true
	}
}

// end notes that a session has ended for good.
func (o *state) end(session string) {
	o.ended[session] = struct{}{}
	delete(o.members, session)
	o.targets = nil
}

// lookFor notes which members' processes are known to have ended.
func (o *state) lookFor(gone func(session string) bool) {
	for session, m := range o.members {
		m.gone = m.gone || session != o.self && gone(session)
	}
}

// others returns what the other members report about an api.
func (o *state) others(api string) (all Others) {
	for session, m := range o.members {
		if session == o.self || m.Leaving || m.Partitions[api] != o.apis[api] {
			continue
		}
		stays := !slices.Contains(m.CutOff, api)
		all.Stay = all.Stay || stays
		all.Reach = all.Reach || stays && slices.Contains(m.Reaches, api)
		all.Seek = all.Seek || slices.Contains(m.Seeks, api)
	}
	return all
}

// expelDead returns the actions that expel members that have not renewed for too long, or whose processes are known to
// have ended.
func (o *state) expelDead(now time.Time) []action {
	if now.Sub(o.renewed) > mostGap {
		return nil // the registry itself does not answer
	}
	var actions []action
	for _, session := range slices.Sorted(maps.Keys(o.members)) {
		m := o.members[session]
		since := m.seen
		if o.steady.After(since) {
			since = o.steady
		}
		if session == o.self || !m.gone && !lease.Lapsed(since, now) {
			continue
		}
		actions = o.expel(actions, session, m.revision)
	}
	return actions
}

func (o *state) expel(actions []action, session string, revision uint64) []action {
	if _, busy := o.asked[session]; busy {
		return actions
	}
	o.asked[session] = struct{}{}
	return append(actions, action{do: actionExpel, session: session, revision: revision})
}

// forgetEnded forgets ended sessions that own no claim any more.
func (o *state) forgetEnded() {
	if len(o.ended) == 0 {
		return
	}
	owners := map[string]struct{}{}
	for _, c := range o.claims {
		owners[c.owner] = struct{}{}
	}
	maps.DeleteFunc(o.ended, func(session string, _ struct{}) bool {
		_, owns := owners[session]
		return !owns
	})
}

// expelled handles the end of actionExpel. newest is the revision of a session that has not ended, 0 if it is unknown.
func (o *state) expelled(session string, ended bool, newest uint64, now time.Time) {
	delete(o.asked, session)
	m := o.members[session]
	switch {
	case ended:
		o.end(session)
		return
	case m == nil && newest == 0:
		return
	case m == nil: // the watch has not shown it
		m = &peer{}
		o.members[session] = m
	}
	m.revision, m.seen = max(m.revision, newest), now // the wait begins again
}

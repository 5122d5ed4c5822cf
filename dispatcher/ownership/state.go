package ownership

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"weir/bucket/lease"
)

// ownership decides which partitions this replica takes, opens, gives up, and whom it ends for being dead. It is a plain
// value: what happened comes in with the time, what is to be done comes out of plan, and each action's end is told back.
//
// What holds, over all replicas:
//
//	O1  a partition is claimed only where it was released, or where the session that claimed it before has ended for good
//	O2  a session is ended only by a write that names its newest renewal, which nobody has seen change for a term and a
//	    margin; the session itself has not started a call since a margin before its term ended, and cannot renew any more. Or its
//	    process is known to have ended, which is known where it left its notes; what it sent before names an earlier renewal
//	O3  a partition is released only when all its calls have ended and what came of them is stored
//
// So no two replicas start calls of one partition at the same time: the one that claims it last does so after the other
// has stopped by its own clock. Nothing here depends on how fresh the view is, only how soon a partition is taken.
type state struct {
	self    string         // this replica's session
	name    string         // this replica's
	apis    map[string]int // the number of partitions of every api that it dispatches
	leaving bool

	complete bool                // all that stood in the registry when the watch began has been seen
	members  map[string]*peer    // by session, this replica's own too
	ended    map[string]struct{} // sessions that are known to have ended
	asked    map[string]struct{} // sessions that are being expelled
	claims   map[lease.PartitionID]ownerClaim
	held     map[lease.PartitionID]*holding
	targets  map[lease.PartitionID]string // who should own what; nil: to be worked out again
	again    map[string]struct{}          // keys seen since the watch began anew

	renewed time.Time // this replica's last renewal
	steady  time.Time // since when its renewals have come without a gap
}

// ownerClaim is what the registry says of a partition: its owner's session, empty for none.
type ownerClaim struct {
	owner    string
	revision uint64
}

// holdPhase is how far this replica is with a partition.
type holdPhase int8

const (
	holdFree holdPhase = iota
	holdClaiming
	holdClaimed
	holdOpening
	holdOpen
	holdClosing
	holdClosed
	holdReleasing
)

// holding is one partition as this replica has it.
type holding struct {
	phase     holdPhase
	revision  uint64 // of its claim
	replaced  uint64 // the revision that its claim replaced
	former    string // the session that owned it before, empty where it was given up
	clean     bool   // the owner before ended all its calls and stored what came of them
	tenure    int    // numbers the times it was opened
	notBefore time.Time
}

// actionKind is what is to be done.
type actionKind int8

const (
	actionClaim actionKind = iota
	actionOpen
	actionClose
	actionRelease
	actionExpel
	actionLose // let go of it at once: somebody else has claimed it. It has no end to be told
)

// action is one thing to be done; its end is told by the method named like it.
type action struct {
	do       actionKind
	part     lease.PartitionID
	session  string // to be expelled; of actionOpen, that of the owner before
	revision uint64
	clean    bool
	tenure   int // of actionOpen and actionClose
}

// actionRetry is how soon what failed is tried again.
const actionRetry = 500 * time.Millisecond

// unreadableRetry is how soon a claim is tried again that only an operator can help.
const unreadableRetry = 10 * time.Second

func newState(self, name string, now time.Time) *state {
	return &state{
		self: self, name: name, apis: map[string]int{}, members: map[string]*peer{}, ended: map[string]struct{}{}, asked: map[string]struct{}{},
		claims: map[lease.PartitionID]ownerClaim{}, held: map[lease.PartitionID]*holding{}, again: map[string]struct{}{},
		renewed: now, steady: now,
	}
}

// dispatches says what this replica dispatches from now on.
func (o *state) dispatches(apis map[string]int) {
	o.apis, o.targets = apis, nil
}

// leave makes plan give everything up.
func (o *state) leave() { o.leaving, o.targets = true, nil }

// renew says that this replica's lease has been renewed. Where it could not be for a while, neither could others theirs,
// perhaps: their time begins anew.
func (o *state) renew(now time.Time) {
	if now.Sub(o.renewed) > mostGap {
		o.steady = now
	}
	o.renewed = now
}

// mostGap is the longest time between two renewals of our own in which the silence of others means something.
const mostGap = 3 * lease.MemberRenew

// plan says what is to be done now. What it says it does not say again until its end has been told.
func (o *state) plan(now time.Time) []action {
	if !o.complete {
		return nil
	}
	actions := o.expelDead(now)
	targets := o.aim()
	for _, p := range o.partitions() {
		if d, ok := o.next(p, targets[p] == o.self && !o.leaving, now); ok {
			actions = append(actions, d)
		}
	}
	o.forgetEnded()
	return actions
}

// partitions are all that this replica dispatches, or still has, in order.
func (o *state) partitions() []lease.PartitionID {
	var all []lease.PartitionID
	for api, n := range o.apis {
		for p := range n {
			all = append(all, lease.PartitionID{API: api, Number: p})
		}
	}
	slices.SortFunc(all, func(a, b lease.PartitionID) int {
		return cmp.Or(cmp.Compare(a.API, b.API), cmp.Compare(a.Number, b.Number))
	})
	return all
}

// aim works out who should own what, among the members that dispatch an api and stay.
func (o *state) aim() map[lease.PartitionID]string {
	if o.targets != nil {
		return o.targets
	}
	o.targets = map[lease.PartitionID]string{}
	for api, n := range o.apis {
		sessions, names := o.takers(api, n)
		for p, owner := range divide(api, n, names) {
			o.targets[lease.PartitionID{API: api, Number: p}] = sessions[owner]
		}
	}
	return o.targets
}

// takers are the members, and their names, among whom an api's partitions are shared: those that stay and have not left it to others,
// or where all have, all that stay.
func (o *state) takers(api string, n int) (sessions, names []string) {
	var cut []string
	take := func(session, name string, m *peer) {
		if m != nil && slices.Contains(m.CutOff, api) {
			cut = append(cut, session)
		}
		sessions, names = append(sessions, session), append(names, name)
	}
	if !o.leaving {
		take(o.self, o.name, o.members[o.self]) // whether or not the watch shows it just now
	}
	for _, session := range slices.Sorted(maps.Keys(o.members)) {
		m := o.members[session]
		if session == o.self || m.Leaving || m.Partitions[api] != n {
			continue
		}
		take(session, m.Instance, m)
	}
	if len(cut) == 0 || len(cut) == len(sessions) {
		return sessions, names
	}
	for _, session := range cut {
		i := slices.Index(sessions, session)
		sessions, names = slices.Delete(sessions, i, i+1), slices.Delete(names, i, i+1)
	}
	return sessions, names
}

// next is what is to be done about one partition.
func (o *state) next(p lease.PartitionID, mine bool, now time.Time) (d action, ok bool) {
	h := o.held[p]
	if h == nil {
		h = &holding{}
		o.held[p] = h
	}
	d = action{part: p}
	if c := o.claims[p]; h.phase >= holdClaimed && h.phase <= holdClosed && c.revision != 0 && c.owner != o.self {
		o.dropped(p, now)
		d.do = actionLose
		return d, true
	}
	switch h.phase {
	case holdFree:
		if now.Before(h.notBefore) {
			return d, false
		}
		return o.begin(p, h, mine)
	case holdClaimed:
		return h.open(d), true
	case holdOpen:
		if mine {
			return d, false
		}
		h.phase, d.do, d.tenure = holdClosing, actionClose, h.tenure
		return d, true
	case holdClosed:
		h.phase, d.do, d.revision = holdReleasing, actionRelease, h.revision
		return d, true
	}
	return d, false
}

func (h *holding) open(d action) action {
	h.tenure++
	h.phase, d.do, d.clean, d.session, d.tenure = holdOpening, actionOpen, h.clean, h.former, h.tenure
	return d
}

// begin is what is to be done about a partition that this replica does nothing about yet.
func (o *state) begin(p lease.PartitionID, h *holding, mine bool) (d action, ok bool) {
	c := o.claims[p]
	d = action{part: p, revision: c.revision}
	_, over := o.ended[c.owner]
	switch {
	case c.owner == o.self && mine: // claimed, and it did not hear of it; or it had to let go for a moment
		// Claimed once more: a watch that lags shows what was given up since.
		h.phase, h.replaced, h.former, d.do = holdClaiming, c.revision, c.owner, actionClaim
	case c.owner == o.self:
		h.phase, d.do = holdReleasing, actionRelease
	case !mine:
		return d, false
	case c.owner == "", over:
		h.phase, h.replaced, h.former, d.do = holdClaiming, c.revision, c.owner, actionClaim
		h.clean = c.owner == "" && c.revision > 0 // without a claim the registry may have lost one
	case o.members[c.owner] == nil:
		if actions := o.expel(nil, c.owner, 0); len(actions) > 0 {
			return actions[0], true
		}
		return d, false
	default:
		return d, false // its owner lives, and will give it up
	}
	return d, true
}

// claimed is the end of actionClaim.
func (o *state) claimed(p lease.PartitionID, revision uint64, err error, now time.Time) {
	h := o.held[p]
	if err != nil {
		h.phase, h.notBefore = holdFree, now.Add(actionRetry)
		if errors.Is(err, lease.ErrUnreadable) {
			h.notBefore = now.Add(unreadableRetry)
		}
		return
	}
	h.phase, h.revision = holdClaimed, revision
	o.wrote(p, ownerClaim{o.self, revision})
}

// opened is the end of actionOpen.
func (o *state) opened(d action, err error, now time.Time) {
	h := o.held[d.part]
	if h.phase != holdOpening || h.tenure != d.tenure {
		return // dropped meanwhile
	}
	if h.phase = holdOpen; err != nil {
		h.phase, h.notBefore = holdFree, now.Add(2*actionRetry)
	}
}

// dropped says that a partition was let go of without ending its calls.
func (o *state) dropped(p lease.PartitionID, now time.Time) {
	if h := o.held[p]; h != nil && h.phase != holdFree {
		h.phase, h.clean, h.notBefore = holdFree, false, now.Add(2*actionRetry)
	}
}

// closed is the end of actionClose.
func (o *state) closed(d action) {
	if h := o.held[d.part]; h.phase == holdClosing && h.tenure == d.tenure {
		h.phase, h.clean = holdClosed, true
	}
}

// released is the end of actionRelease.
func (o *state) released(p lease.PartitionID, revision uint64, err error, now time.Time) {
	h := o.held[p]
	h.phase = holdFree
	if err != nil {
		h.notBefore = now.Add(actionRetry)
	} else {
		o.wrote(p, ownerClaim{"", revision})
	}
}

// empty reports whether this replica has nothing left to give up.
func (o *state) empty() bool {
	for p, h := range o.held {
		if h.phase != holdFree || o.claims[p].owner == o.self {
			return false
		}
	}
	return true
}

// unready says why a job might not be dispatched now, "" when it would be: every partition is open here, or with
// somebody who has been heard of, or on its way from one to the other.
func (o *state) unready() string {
	if !o.complete {
		return "who owns what is not known yet"
	}
	targets := o.aim()
	for _, p := range o.partitions() {
		h, owner := o.held[p], o.members[o.claims[p].owner]
		switch next := o.members[targets[p]]; {
		case h != nil && h.phase == holdOpen:
		case o.claims[p].owner != o.self && owner != nil && owner.heard:
		case targets[p] != o.self && next != nil && next.heard && o.claims[p].owner == "":
		default:
			return fmt.Sprintf("nobody has opened partition %d of api %s yet", p.Number, p.API)
		}
	}
	return ""
}

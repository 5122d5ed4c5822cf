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

// state decides which partitions this replica takes, opens and gives up, and which dead members' sessions it ends. It
// is a plain value: events come in with the time, plan returns the actions to take, and the caller reports the end of
// each action.
//
// What holds, over all replicas:
//
//	O1  A partition is claimed only if no other session can own it: it was released, or the session that claimed it
//	    has ended for good.
//	O2  A session is ended only by a write that names its newest renewal. The ending replica must have seen no
//	    change of that renewal for lease.Term. The session may start calls only for lease.Right, which is shorter.
//	    The replica need not wait if notes on the same machine show that the session's process has ended. The
//	    session cannot renew any more, because each renewal names the one before.
//	O3  A partition is released only when no more calls of it start. Unless it was dropped, its calls have ended
//	    and their outcomes are stored.
//
// So no two replicas start calls of one partition at the same time: a replica claims the partition only after the
// former owner has stopped by its own clock. None of this depends on how fresh a replica's view of the registry is. A
// stale view only delays when a partition is taken.
type state struct {
	self    string         // this replica's session
	name    string         // this replica's name
	apis    map[string]int // the number of partitions of every api that it dispatches
	leaving bool

	complete bool                // the watch has shown all that the registry held when the watch began
	members  map[string]*peer    // by session, with this replica itself
	ended    map[string]struct{} // sessions that are known to have ended
	asked    map[string]struct{} // sessions that are being expelled
	claims   map[lease.PartitionID]ownerClaim
	held     map[lease.PartitionID]*holding
	targets  map[lease.PartitionID]string // the session that should own each partition; nil: must be computed again
	own      []lease.PartitionID          // the partitions that targets gives to this replica
	again    map[string]struct{}          // keys that the present watch has shown while it was not complete

	renewed time.Time // this replica's last renewal
	steady  time.Time // when its renewals began to come without a gap
}

// ownerClaim is a partition's entry in the registry: its owner's session, empty for none.
type ownerClaim struct {
	owner    string
	revision uint64
}

// holdPhase is the phase in which this replica holds a partition.
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

// holding is what this replica knows of one partition that it holds, or may hold.
type holding struct {
	phase     holdPhase
	revision  uint64 // the revision of this replica's claim
	replaced  uint64 // the revision that this replica's claim replaced
	former    string // the session that owned it before; empty if that session released it
	clean     bool   // the previous owner released it: see Tenure.Clean
	tenure    int    // how often it was opened
	notBefore time.Time
}

// actionKind is a kind of action.
type actionKind int8

const (
	actionClaim actionKind = iota
	actionOpen
	actionClose
	actionRelease
	actionExpel
	actionLose // drop the partition at once: another replica has claimed it; the end of this action is not reported
)

// action is one thing to do. The method named after its kind (claimed, opened, closed, released, expelled) handles its
// end.
type action struct {
	do       actionKind
	part     lease.PartitionID
	session  string // actionExpel: the session to expel; actionOpen: the previous owner's
	revision uint64
	clean    bool
	tenure   int // for actionOpen and actionClose
}

// actionRetry is the delay before a failed action is tried again.
const actionRetry = 500 * time.Millisecond

// unreadableRetry is the delay before a claim is tried again after lease.ErrUnreadable, which only an operator can
// mend.
const unreadableRetry = 10 * time.Second

func newState(self, name string, now time.Time) *state {
	return &state{
		self: self, name: name, apis: map[string]int{}, members: map[string]*peer{}, ended: map[string]struct{}{}, asked: map[string]struct{}{},
		claims: map[lease.PartitionID]ownerClaim{}, held: map[lease.PartitionID]*holding{}, again: map[string]struct{}{},
		renewed: now, steady: now,
	}
}

// dispatches sets which apis this replica dispatches from now on, and the number of partitions of each.
func (o *state) dispatches(apis map[string]int) {
	o.apis, o.targets = apis, nil
}

// leave makes plan give up all partitions.
func (o *state) leave() { o.leaving, o.targets = true, nil }

// renew notes that this replica's lease was renewed. After a gap, the other replicas may have been unable to renew too,
// so their time begins again.
func (o *state) renew(now time.Time) {
	if now.Sub(o.renewed) > mostGap {
		o.steady = now
	}
	o.renewed = now
}

// mostGap is the longest time between two renewals of this replica. After a longer gap, missing renewals of other
// replicas prove nothing.
const mostGap = 3 * lease.MemberRenew

// plan returns the actions to take now. It does not return an action again until the action's end has been
// reported.
func (o *state) plan(now time.Time) []action {
	if !o.complete {
		return nil
	}
	actions := o.expelDead(now)
	targets := o.aim()
	for _, p := range o.concerned() {
		if d, ok := o.next(p, targets[p] == o.self && !o.leaving, now); ok {
			actions = append(actions, d)
		}
	}
	o.forgetEnded()
	return actions
}

// partitions returns all partitions of the apis that this replica dispatches, in order.
func (o *state) partitions() []lease.PartitionID {
	var all []lease.PartitionID
	for api, n := range o.apis {
		for p := range n {
			all = append(all, lease.PartitionID{API: api, Number: p})
		}
	}
	slices.SortFunc(all, comparePartitions)
	return all
}

// concerned returns the partitions for which there may be something to do, in order: those that this replica should
// own, and those that it holds or has held. A fleet may have a hundred times as many.
func (o *state) concerned() []lease.PartitionID {
	all := slices.Clone(o.own)
	for p := range o.held {
		if p.Number < o.apis[p.API] {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, comparePartitions)
	return slices.Compact(all)
}

func comparePartitions(a, b lease.PartitionID) int {
	return cmp.Or(cmp.Compare(a.API, b.API), cmp.Compare(a.Number, b.Number))
}

// aim returns the session of the member that should own each partition. Only members that dispatch an api and stay get
// its partitions.
func (o *state) aim() map[lease.PartitionID]string {
	if o.targets != nil {
		return o.targets
	}
	o.targets, o.own = map[lease.PartitionID]string{}, nil
	for api, n := range o.apis {
		sessions, names := o.takers(api, n)
		for number, owner := range divide(api, n, names) {
			p := lease.PartitionID{API: api, Number: number}
			if o.targets[p] = sessions[owner]; sessions[owner] == o.self {
				o.own = append(o.own, p)
			}
		}
	}
	return o.targets
}

// takers returns the sessions and the names of the members that share an api's partitions. They are the members that
// stay and have not left the api to other replicas. If all have left it, they are all members that stay.
func (o *state) takers(api string, n int) (sessions, names []string) {
	var cut []string
	take := func(session, name string, m *peer) {
		if m != nil && slices.Contains(m.CutOff, api) {
			cut = append(cut, session)
		}
		sessions, names = append(sessions, session), append(names, name)
	}
	all := slices.Collect(maps.Keys(o.members))
	if o.members[o.self] == nil {
		all = append(all, o.self) // even if the watch does not show it just now
	}
	slices.Sort(all) // the same order at every replica: divide prefers the first of two that have the same name
	for _, session := range all {
		m := o.members[session]
		switch {
		case session == o.self && !o.leaving:
			take(session, o.name, m)
		case session != o.self && !m.Leaving && m.Partitions[api] == n:
			take(session, m.Instance, m)
		}
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

// next returns the action to take for one partition.
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

// begin returns the action to take for a partition that this replica does not hold.
func (o *state) begin(p lease.PartitionID, h *holding, mine bool) (d action, ok bool) {
	c := o.claims[p]
	d = action{part: p, revision: c.revision}
	_, over := o.ended[c.owner]
	switch {
	case c.owner == o.self && mine: // the claim's answer got lost, or the partition was dropped for a moment
		// Claim it again: a watch that lags shows claims that were released since.
		h.phase, h.replaced, h.former, d.do = holdClaiming, c.revision, c.owner, actionClaim
	case c.owner == o.self:
		h.phase, d.do = holdReleasing, actionRelease
	case !mine:
		return d, false
	case c.owner == "", over:
		h.phase, h.replaced, h.former, d.do = holdClaiming, c.revision, c.owner, actionClaim
		h.clean = c.owner == "" && c.revision > 0 // a registry without a claim may have lost one
	case o.members[c.owner] == nil:
		if actions := o.expel(nil, c.owner, 0); len(actions) > 0 {
			return actions[0], true
		}
		return d, false
	default:
		return d, false // its owner lives, and will give the partition up
	}
	return d, true
}

// claimed handles the end of actionClaim.
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

// opened handles the end of actionOpen.
func (o *state) opened(d action, err error, now time.Time) {
	h := o.held[d.part]
	if h.phase != holdOpening || h.tenure != d.tenure {
		return // dropped meanwhile
	}
	if h.phase = holdOpen; err != nil {
		h.phase, h.notBefore = holdFree, now.Add(2*actionRetry)
	}
}

// dropped notes that a partition was dropped before its calls had ended.
func (o *state) dropped(p lease.PartitionID, now time.Time) {
	if h := o.held[p]; h != nil && h.phase != holdFree {
		h.phase, h.clean, h.notBefore = holdFree, false, now.Add(2*actionRetry)
	}
}

// closed handles the end of actionClose. After an error the partition counts as dropped.
func (o *state) closed(d action, err error, now time.Time) {
	h := o.held[d.part]
	switch {
	case h.phase != holdClosing || h.tenure != d.tenure: // dropped meanwhile
	case err != nil:
		o.dropped(d.part, now)
	default:
		h.phase, h.clean = holdClosed, true
	}
}

// released handles the end of actionRelease.
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

// hasOpened reports whether this replica has ever opened a partition. If so, its calls may still run.
func (o *state) hasOpened() bool {
	for _, h := range o.held {
		if h.tenure > 0 {
			return true
		}
	}
	return false
}

// unready returns why a job might not be dispatched now, "" if every job would be dispatched. That is so if every
// partition is open here, or belongs to a member that has renewed while this replica watched, or is on its way from one
// to the other.
func (o *state) unready() string {
	if !o.complete {
		return "the owners of partitions are not known yet"
	}
	targets := o.aim()
	for _, p := range o.partitions() {
		h, owner := o.held[p], o.members[o.claims[p].owner]
		switch next := o.members[targets[p]]; {
		case h != nil && h.phase == holdOpen:
		case o.claims[p].owner != o.self && owner != nil && owner.heard:
		case targets[p] != o.self && next != nil && next.heard && o.claims[p].owner == "":
		default:
			return fmt.Sprintf("no replica has opened partition %d of api %s yet", p.Number, p.API)
		}
	}
	return ""
}

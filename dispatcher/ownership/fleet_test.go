package ownership

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket/lease"
)

// fleet is many replicas that share many partitions, in virtual time. It counts the messages of ownership and measures
// how long partitions are without an owner. No message is lost, clocks run alike and no process stops for a while,
// because world has the faults and fleet has the size. The seed alone decides what happens.
type fleet struct {
	t        testing.TB
	rnd      *rand.Rand
	begun    time.Time
	now      time.Time
	next     worldEvents
	apis     map[string]int
	entries  map[fleetKey]fleetEntry
	rev      uint64
	stored   time.Time // when the registry is done with all writes that were sent to it
	relayed  time.Time // when the server has sent out all deliveries to watches
	all      []*fleetReplica
	owner    map[lease.PartitionID]*fleetReplica // the replica that has the partition open
	want     map[lease.PartitionID]string        // the replica that should have it in the end
	placed   int                                 // partitions that are open at the replica of want
	orphans  map[lease.PartitionID]bool          // partitions of a dead replica that are not open again
	closed   map[lease.PartitionID]time.Time     // when the last owner stopped calling
	count    fleetCount
	oldest   time.Duration // the longest time since a replica's last renewal, of replicas that have partitions
	reopened time.Time     // when the last orphan was opened
}

// Times of a fleet, where no measured figure is better.
const (
	fleetStart  = 200 * time.Millisecond // replicas that start together join within this time
	fleetTrip   = 2 * time.Millisecond   // of a message, at most; at least half of it
	fleetStore  = 150 * time.Microsecond // of a synced write on the server
	fleetRelay  = 5 * time.Microsecond   // of the server for each message that it sends to a watch
	fleetOpen   = 150 * time.Millisecond // to open a partition, at most; at least a third of it
	fleetEnding = time.Second            // until the calls of a closed partition have ended, at most
	fleetLimit  = 5 * time.Minute
)

// fleetCount counts messages and events.
type fleetCount struct {
	writes     int           // to the registry
	answers    int           // of the registry, to writes
	asked      int           // other requests and their answers
	deliveries int           // to watches
	opens      int           // of partitions
	vain       int           // tries to end the lease of a replica that lives
	gap        time.Duration // the longest time that a partition was closed
}

func (c fleetCount) messages() int { return c.writes + c.answers + c.asked + c.deliveries }

func (c fleetCount) since(before fleetCount) fleetCount {
	return fleetCount{
		c.writes - before.writes, c.answers - before.answers, c.asked - before.asked, c.deliveries - before.deliveries,
		c.opens - before.opens, c.vain - before.vain, c.gap,
	}
}

// fleetKey is a session's membership, or a partition's claim.
type fleetKey struct {
	session string
	part    lease.PartitionID
}

// fleetEntry has neither a member nor an owner after a deletion.
type fleetEntry struct {
	member *lease.Member
	owner  string
	rev    uint64
}

func (k fleetKey) sighting(e fleetEntry) lease.Sighting {
	if k.session != "" {
		return lease.Sighting{Revision: e.rev, Session: k.session, Member: e.member}
	}
	return lease.Sighting{Revision: e.rev, Partition: &k.part, Owner: e.owner}
}

// fleetReplica is one process, with one lease.
type fleetReplica struct {
	f        *fleet
	name     string
	session  string
	o        *state // nil until the replica has joined
	revision uint64 // of its membership
	renewed  time.Time
	renewing bool
	again    bool // announce once more
	leaving  bool
	over     bool
	watching bool
	since    uint64 // the watch begins behind this revision
	waiting  []action
	running  int // actions under way
	parts    int // open partitions
}

func newFleet(t testing.TB, seed uint64, replicas, apis, partitions int) *fleet {
	f := &fleet{
		t: t, rnd: rand.New(rand.NewPCG(seed, 5)), begun: time.Unix(1_700_000_000, 0), apis: map[string]int{},
		entries: map[fleetKey]fleetEntry{}, owner: map[lease.PartitionID]*fleetReplica{},
		orphans: map[lease.PartitionID]bool{}, closed: map[lease.PartitionID]time.Time{},
	}
	f.now = f.begun
	for i := range apis {
		f.apis[fmt.Sprintf("api-%02d", i)] = partitions
	}
	for range replicas {
		f.add(f.upTo(fleetStart))
	}
	return f
}

func (f *fleet) after(d time.Duration, do func()) { f.at(f.now.Add(d), do) }

func (f *fleet) at(at time.Time, do func()) { heap.Push(&f.next, worldEvent{at, do}) }

func (f *fleet) upTo(d time.Duration) time.Duration { return time.Duration(f.rnd.Int64N(int64(d) + 1)) }

func (f *fleet) trip() time.Duration { return fleetTrip/2 + f.upTo(fleetTrip/2) }

// add starts another replica.
func (f *fleet) add(in time.Duration) *fleetReplica {
	r := &fleetReplica{f: f, name: fmt.Sprintf("weir-%d", len(f.all))}
	r.session = r.name + "/session"
	f.all = append(f.all, r)
	f.after(in, r.join)
	return r
}

// after does something later, unless the process has ended by then.
func (r *fleetReplica) after(d time.Duration, do func()) {
	r.f.after(d, func() {
		if !r.over {
			do()
		}
	})
}

// write sends a conditional write. If the answer is not there after wait, done gets an error, and not the answer.
func (r *fleetReplica) write(
	key fleetKey, value fleetEntry, expect uint64, wait time.Duration, done func(rev uint64, err error),
) {
	f := r.f
	f.count.writes++
	f.stored = later(f.stored, f.now.Add(f.trip())).Add(fleetStore)
	heard := false
	f.at(f.stored, func() {
		err := errWorldStale
		if f.entries[key].rev == expect {
			f.rev++
			value.rev, err = f.rev, nil
			f.entries[key] = value
			f.relay(key.sighting(value))
		}
		f.count.answers++
		r.after(f.trip(), func() {
			if !heard {
				heard = true
				done(value.rev, err)
			}
		})
	})
	r.after(wait, func() {
		if !heard {
			heard = true
			done(0, errWorldLost)
		}
	})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// relay sends a change to every watch. The server sends one message after the other.
func (f *fleet) relay(s lease.Sighting) {
	var to []*fleetReplica
	for _, r := range f.all {
		if r.watching && !r.over {
			to = append(to, r)
		}
	}
	f.sends(len(to), func() {
		for _, r := range to {
			if !r.over && s.Revision > r.since {
				r.o.see(s, f.now)
			}
		}
	})
}

// sends counts deliveries and does then when the server has sent them and they have arrived.
func (f *fleet) sends(n int, then func()) {
	f.count.deliveries += n
	f.relayed = later(f.relayed, f.now).Add(time.Duration(max(n, 1)) * fleetRelay)
	f.at(f.relayed.Add(fleetTrip), then)
}

func (r *fleetReplica) member() *lease.Member {
	return &lease.Member{Instance: r.name, Partitions: r.f.apis, Leaving: r.leaving}
}

func (r *fleetReplica) join() {
	f, before := r.f, r.f.now
	r.write(fleetKey{session: r.session}, fleetEntry{member: r.member()}, 0, time.Minute, func(rev uint64, err error) {
		if err != nil {
			f.t.Fatalf("%s cannot join: %v", r.name, err)
		}
		r.revision, r.renewed = rev, before
		r.o = newState(r.session, r.name, f.now)
		r.o.dispatches(f.apis)
		r.o.watchBegins()
		r.watch()
		r.after(lease.MemberRenew, r.renew)
		r.plan()
	})
}

// watch begins to see the registry: what is there, and then every change.
func (r *fleetReplica) watch() {
	f := r.f
	r.watching, r.since = true, f.rev
	shown := make([]lease.Sighting, 0, len(f.entries))
	for key, e := range f.entries {
		shown = append(shown, key.sighting(e))
	}
	slices.SortFunc(shown, func(a, b lease.Sighting) int { return int(a.Revision) - int(b.Revision) })
	f.sends(len(shown), func() {
		if r.over {
			return
		}
		for _, s := range append(shown, lease.Sighting{}) {
			r.o.see(s, f.now)
		}
	})
}

func (r *fleetReplica) renew() {
	r.announce()
	r.after(lease.MemberRenew, r.renew)
}

// announce renews the membership. It waits for a renewal that is under way.
func (r *fleetReplica) announce() {
	f := r.f
	if r.again = r.renewing; r.again {
		return
	}
	r.renewing = true
	before, key := f.now, fleetKey{session: r.session}
	r.write(key, fleetEntry{member: r.member()}, r.revision, lease.MemberRenew, func(rev uint64, err error) {
		r.renewing = false
		switch e := f.entries[key]; {
		case err == nil:
			r.revision, r.renewed = rev, before
			r.o.renew(f.now)
		case errors.Is(err, errWorldStale) && e.member == nil:
			f.t.Fatalf("%s was taken for dead, after %s", r.name, f.now.Sub(r.renewed))
		case errors.Is(err, errWorldStale):
			f.count.asked += 2
			r.revision = e.rev
		}
		if r.again {
			r.announce()
		}
	})
}

// plan runs every planEvery. A real process plans after each event too, so each of its steps begins earlier.
func (r *fleetReplica) plan() {
	f := r.f
	if r.parts > 0 {
		f.oldest = max(f.oldest, f.now.Sub(r.renewed))
	}
	for _, d := range r.o.plan(f.now) {
		switch d.do {
		case actionExpel:
			r.expel(d)
		case actionLose:
			f.t.Fatalf("%s loses %s", r.name, d.part)
		default:
			r.waiting = append(r.waiting, d)
		}
	}
	r.act()
	if r.leaving && r.o.empty() && !r.renewing {
		r.write(fleetKey{session: r.session}, fleetEntry{}, r.revision, time.Minute, func(uint64, error) {})
		r.over = true
		return
	}
	r.after(planEvery, r.plan)
}

// act runs the actions that wait, maxActions at the same time.
func (r *fleetReplica) act() {
	for ; r.running < maxActions && len(r.waiting) > 0; r.running++ {
		d := r.waiting[0]
		r.waiting = r.waiting[1:]
		r.do(d)
	}
}

func (r *fleetReplica) do(d action) {
	f, key := r.f, fleetKey{part: d.part}
	ends := func(tell func()) {
		tell()
		r.running--
		r.act()
	}
	switch d.do {
	case actionClaim:
		claim := func() {
			r.write(key, fleetEntry{owner: r.session}, d.revision, time.Minute, func(rev uint64, err error) {
				ends(func() { r.o.claimed(d.part, rev, err, f.now) })
			})
		}
		if d.revision > 0 {
			claim()
			return
		}
		f.count.asked += 4 // whether the server holds a claim that it cannot read
		r.after(2*(f.trip()+f.trip()), claim)
	case actionOpen:
		r.after(fleetOpen/3+f.upTo(fleetOpen*2/3), func() {
			r.open(d.part)
			ends(func() { r.o.opened(d, nil, f.now) })
		})
	case actionClose:
		r.close(d.part)
		r.after(f.upTo(fleetEnding), func() { ends(func() { r.o.closed(d, nil, f.now) }) })
	case actionRelease:
		r.write(key, fleetEntry{}, d.revision, time.Minute, func(rev uint64, err error) {
			ends(func() { r.o.released(d.part, rev, err, f.now) })
		})
	default:
		f.t.Fatalf("unknown action %d", d.do)
	}
}

func (r *fleetReplica) expel(d action) {
	f, key := r.f, fleetKey{session: d.session}
	r.write(key, fleetEntry{}, d.revision, time.Minute, func(_ uint64, err error) {
		if err == nil {
			r.o.expelled(d.session, true, 0, f.now)
			return
		}
		f.count.asked += 2
		e := f.entries[key]
		if e.member != nil {
			f.count.vain++ // the watch lags, and shows an earlier renewal
		}
		r.o.expelled(d.session, e.member == nil, e.rev, f.now)
	})
}

// open checks that no two replicas have a partition open.
func (r *fleetReplica) open(p lease.PartitionID) {
	f := r.f
	if other := f.owner[p]; other != nil {
		f.t.Fatalf("%s and %s have %s open", r.name, other.name, p)
	}
	f.owner[p] = r
	f.count.opens++
	r.parts++
	if f.want[p] == r.name {
		f.placed++
	}
	if f.orphans[p] {
		delete(f.orphans, p)
		f.reopened = f.now
	}
	if at, ok := f.closed[p]; ok {
		f.count.gap = max(f.count.gap, f.now.Sub(at))
	}
}

func (r *fleetReplica) close(p lease.PartitionID) {
	f := r.f
	delete(f.owner, p)
	f.closed[p] = f.now
	r.parts--
	if f.want[p] == r.name {
		f.placed--
	}
}

// dies ends a process without a word. Its partitions are orphans.
func (r *fleetReplica) dies() {
	r.over = true
	for _, p := range r.f.partitions() {
		if r.f.owner[p] == r {
			r.close(p)
			r.f.orphans[p] = true
		}
	}
}

// leaves ends a process in order.
func (r *fleetReplica) leaves() {
	r.leaving = true
	r.o.leave()
	r.announce()
}

func (f *fleet) partitions() []lease.PartitionID {
	o := state{apis: f.apis}
	return o.partitions()
}

// owners returns the name of each partition's owner.
func (f *fleet) owners() map[lease.PartitionID]string {
	names := map[lease.PartitionID]string{}
	for p, r := range f.owner {
		names[p] = r.name
	}
	return names
}

// balance lets time pass until every partition is open at the replica that should have it.
func (f *fleet) balance() {
	var names []string
	for _, r := range f.all {
		if !r.over && !r.leaving {
			names = append(names, r.name)
		}
	}
	f.want, f.placed = map[lease.PartitionID]string{}, 0
	for api, n := range f.apis {
		for number, owner := range divide(api, n, names) {
			p := lease.PartitionID{API: api, Number: number}
			f.want[p] = names[owner]
			if r := f.owner[p]; r != nil && r.name == names[owner] {
				f.placed++
			}
		}
	}
	f.run(f.now.Add(fleetLimit), func() bool { return f.placed == len(f.want) })
	if f.placed < len(f.want) {
		f.t.Fatalf("after %s %d of %d partitions are in their place", fleetLimit, f.placed, len(f.want))
	}
}

// run lets time pass until the end, or until done.
func (f *fleet) run(until time.Time, done func() bool) {
	for len(f.next) > 0 && f.next[0].at.Before(until) && !done() {
		e := heap.Pop(&f.next).(worldEvent)
		f.now = e.at
		e.do()
	}
	if !done() {
		f.now = until
	}
}

func (f *fleet) pass(d time.Duration) { f.run(f.now.Add(d), func() bool { return false }) }

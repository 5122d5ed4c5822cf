package ownership

import (
	"container/heap"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weir/bucket/lease"
)

// world is a few replicas that share partitions over a registry, in virtual time. Clocks run apart, messages and
// answers are late or lost, replicas stop for a while, die, and come back as others. The seed alone decides what
// happens.
//
// The registry behaves like a stream: writes are applied one by one, each on the condition that it names the
// revision it replaces.
type world struct {
	t    testing.TB
	rnd  *rand.Rand
	now  time.Time // true time, of no replica's clock
	next worldEvents
	kv   map[string]entry
	rev  uint64
	down bool // the registry has no leader
	calm bool // nothing is lost or late any more
	all  []*replica
	apis map[string]int
}

type entry struct {
	value any // lease.Member, a session, or nil for a deletion
	rev   uint64
}

type worldEvent struct {
	at time.Time
	do func()
}

type worldEvents []worldEvent

func (e worldEvents) Len() int           { return len(e) }
func (e worldEvents) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e worldEvents) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

// Push implements heap.Interface.
func (e *worldEvents) Push(x any) { *e = append(*e, x.(worldEvent)) }

// Pop implements heap.Interface.
func (e *worldEvents) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	*e = (*e)[:last]
	return x
}

// replica is one process.
type replica struct {
	w        *world
	name     string
	life     int // of its process: what was meant for an earlier one is not heard
	rate     float64
	begun    time.Time // of its clock
	o        *state
	session  string
	revision uint64    // of its membership
	renewed  time.Time // by its clock
	lost     bool
	leaving  bool
	open     map[lease.PartitionID]bool // calls may start, as far as the partition goes
	ending   map[lease.PartitionID]bool // its calls have not ended yet
	paused   []func()
	asleep   bool
	watched  int // the watch it listens to
}

func (w *world) after(d time.Duration, do func()) { heap.Push(&w.next, worldEvent{w.now.Add(d), do}) }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.rnd.Int64N(int64(d) + 1)) }

// clock returns the time by the replica's clock.
func (r *replica) clock() time.Time {
	return r.begun.Add(time.Duration(float64(r.w.now.Sub(r.begun)) * r.rate))
}

// run makes the replica do something, unless it has died since; a stopped replica does it when it goes on.
func (r *replica) run(d time.Duration, do func()) {
	life := r.life
	r.w.after(d, func() {
		switch {
		case r.life != life:
		case r.asleep:
			r.paused = append(r.paused, func() {
				if r.life == life {
					do()
				}
			})
		default:
			do()
		}
	})
}

var errWorldStale, errWorldLost = errors.New("stale"), errors.New("no answer")

// write sends a conditional write and learns of its end later, or never.
func (r *replica) write(key string, value any, expect uint64, done func(rev uint64, err error)) {
	w := r.w
	if !w.calm && w.rnd.IntN(40) == 0 {
		r.run(2*time.Second, func() { done(0, errWorldLost) }) // it never arrives
		return
	}
	life := r.life
	w.after(r.delay(), func() {
		var rev uint64
		err := errWorldStale
		switch {
		case w.down:
			err = errWorldLost
		case w.kv[key].rev == expect:
			w.rev++
			rev, err = w.rev, nil
			w.kv[key] = entry{value, rev}
			w.tell(key)
		}
		if r.life != life {
			return
		}
		if !w.calm && w.rnd.IntN(30) == 0 {
			err = errWorldLost // the answer is lost
		}
		r.run(r.delay(), func() { done(rev, err) })
	})
}

func (r *replica) delay() time.Duration {
	if !r.w.calm && r.w.rnd.IntN(50) == 0 {
		return r.w.upTo(3 * time.Second)
	}
	return r.w.upTo(20 * time.Millisecond)
}

// tell gives a change to every watch, each in order.
func (w *world) tell(key string) {
	for _, r := range w.all {
		r.hear(key, w.kv[key])
	}
}

func (r *replica) hear(key string, e entry) {
	watch := r.watched
	r.run(50*time.Millisecond, func() { // the same for all, so that the order holds
		if r.o != nil && r.watched == watch {
			r.o.see(sightingOf(key, e), r.clock())
		}
	})
}

func sightingOf(key string, e entry) lease.Sighting {
	s := lease.Sighting{Revision: e.rev}
	var n int
	var api string
	if _, err := fmt.Sscanf(key, "part %s %d", &api, &n); err == nil {
		s.Partition = &lease.PartitionID{API: api, Number: n}
		s.Owner, _ = e.value.(string)
		return s
	}
	s.Session = key
	if m, ok := e.value.(lease.Member); ok {
		s.Member = &m
	}
	return s
}

func partKey(p lease.PartitionID) string { return fmt.Sprintf("part %s %d", p.API, p.Number) }

// start begins a process.
func (r *replica) start() {
	r.life++
	r.o, r.open, r.paused, r.asleep, r.leaving = nil, map[lease.PartitionID]bool{}, nil, false, false
	r.ending = map[lease.PartitionID]bool{}
	r.rate = 0.95 + 0.1*r.w.rnd.Float64()
	r.begun = r.w.now
	r.run(r.w.upTo(500*time.Millisecond), r.join)
}

func (r *replica) member() lease.Member {
	return lease.Member{Instance: r.name, Partitions: r.w.apis, Leaving: r.leaving}
}

func (r *replica) join() {
	r.session, r.lost = fmt.Sprintf("%s/%d/%d", r.name, r.life, r.w.rnd.Int64()), false
	before := r.clock()
	session := r.session
	r.write(session, r.member(), 0, func(rev uint64, err error) {
		if err != nil {
			r.run(time.Second, r.join)
			return
		}
		r.revision, r.renewed = rev, before
		r.o = newState(session, r.name, r.clock())
		r.o.dispatches(r.w.apis)
		r.watch()
		r.run(lease.MemberRenew, r.renew)
		r.plan()
	})
}

// watch begins to see the registry: what is there, and then every change.
func (r *replica) watch() {
	r.watched++
	r.o.watchBegins()
	for _, key := range slices.Sorted(maps.Keys(r.w.kv)) {
		e := r.w.kv[key]
		if _, lease := e.value.(lease.Member); lease && r.w.rnd.IntN(4) == 0 {
			continue // renewed at this moment: it is seen with the next renewal
		}
		r.hear(key, e)
	}
	watch := r.watched
	r.run(50*time.Millisecond, func() {
		if r.o != nil && r.watched == watch {
			r.o.see(lease.Sighting{}, r.clock())
		}
	})
	if r.w.rnd.IntN(3) == 0 {
		r.run(r.w.upTo(20*time.Second), func() {
			if r.o != nil && r.watched == watch {
				r.watch() // it broke
			}
		})
	}
}

func (r *replica) renew() {
	if r.o == nil {
		return
	}
	session, before := r.session, r.clock()
	r.write(session, r.member(), r.revision, func(rev uint64, err error) {
		if r.o == nil || r.session != session {
			return
		}
		switch now := r.w.kv[session]; {
		case err == nil:
			r.revision, r.renewed = rev, before
			r.o.renew(r.clock())
		case errors.Is(err, errWorldStale) && now.value == nil:
			r.lose()
			return
		case errors.Is(err, errWorldStale):
			r.revision = now.rev // renewed without an answer
		}
		r.run(lease.MemberRenew, r.renew)
	})
}

// lose drops everything and joins again.
func (r *replica) lose() {
	r.o, r.open = nil, map[lease.PartitionID]bool{}
	r.run(time.Second, r.join)
}

func (r *replica) plan() {
	if r.o == nil {
		return
	}
	for _, d := range r.o.plan(r.clock()) {
		r.do(r.o, d)
	}
	r.run(planEvery, r.plan)
}

// do runs an action for the ownership that asked for it; a later one is not told.
func (r *replica) do(o *state, d action) {
	still := func(then func()) func() {
		return func() {
			if r.o == o {
				then()
			}
		}
	}
	session := r.session
	switch d.do {
	case actionExpel:
		r.write(d.session, nil, d.revision, func(_ uint64, err error) {
			still(func() {
				now := r.w.kv[d.session]
				ended, newest := err == nil || errors.Is(err, errWorldStale) && now.value == nil && now.rev > 0, uint64(0)
				if !ended && errors.Is(err, errWorldStale) {
					newest = now.rev
				}
				o.expelled(d.session, ended, newest, r.clock())
			})()
		})
	case actionClaim:
		r.write(partKey(d.part), session, d.revision, func(rev uint64, err error) {
			still(func() { o.claimed(d.part, rev, err, r.clock()) })()
		})
	case actionOpen:
		r.run(r.w.upTo(time.Second), still(func() {
			var err error
			if !r.w.calm && r.w.rnd.IntN(20) == 0 {
				err = errWorldLost
			} else {
				r.open[d.part] = true
			}
			o.opened(d, err, r.clock())
		}))
	case actionClose:
		delete(r.open, d.part)
		r.ending[d.part] = true
		r.run(r.w.upTo(2*time.Second), still(func() { // calls end meanwhile; none starts
			delete(r.ending, d.part)
			o.closed(d, nil, r.clock())
		}))
	case actionRelease:
		if r.ending[d.part] {
			r.w.t.Fatalf("%s releases partition %d of %s while its calls run", r.name, d.part.Number, d.part.API)
		}
		r.write(partKey(d.part), nil, d.revision, func(rev uint64, err error) {
			still(func() { o.released(d.part, rev, err, r.clock()) })()
		})
	case actionLose:
		delete(r.open, d.part)
	}
}

// mayCall returns what a replica itself thinks.
func (r *replica) mayCall(p lease.PartitionID) bool {
	return !r.asleep && r.o != nil && r.open[p] && lease.Held(r.renewed, r.clock())
}

// look checks the world's promise: of two replicas that think that they may call, at most one may.
func (w *world) look() {
	for _, api := range slices.Sorted(maps.Keys(w.apis)) {
		for i := range w.apis[api] {
			p := lease.PartitionID{API: api, Number: i}
			owner := ""
			for _, r := range w.all {
				if !r.mayCall(p) {
					continue
				}
				if owner != "" {
					w.t.Fatalf("%s and %s may both call partition %d of %s", owner, r.name, i, api)
				}
				owner = r.name
			}
		}
	}
}

func newWorld(t testing.TB, seed uint64) *world {
	w := &world{
		t: t, rnd: rand.New(rand.NewPCG(seed, 2)), now: time.Unix(1_700_000_000, 0), kv: map[string]entry{},
		apis: map[string]int{"a": 3, "b": 2},
	}
	for i := range 2 + w.rnd.IntN(3) {
		r := &replica{w: w, name: fmt.Sprintf("weir-%d", i)}
		w.all = append(w.all, r)
		r.start()
	}
	return w
}

// run lets time pass until the end, and looks all the time.
func (w *world) run(until time.Time) {
	for len(w.next) > 0 && w.next[0].at.Before(until) {
		e := heap.Pop(&w.next).(worldEvent)
		w.now = e.at
		e.do()
		w.look()
	}
	w.now = until
}

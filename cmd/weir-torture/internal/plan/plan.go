// Package plan determines what a run of the torture does: its options, the configuration of the api and its changes
// (Terms, Timeline), the load, and the faults. A seed determines the plan.
package plan

import (
	"math/rand/v2"
	"slices"
	"time"

	"weir/bucket/fault"
)

// idleInARow is how many kills of weir follow each other while nothing is queued. weir's count of spending must not
// grow with each start.
const idleInARow = 10

// Life is one run of weir, and its end.
type Life struct {
	Order    fault.Order   // where weir must kill itself
	Delay    time.Duration // without order: time to the kill, after weir is ready or has called; if early, after its start
	Early    bool          // killed while it starts
	Calls    bool          // the end waits for a call
	Takeover bool          // weir is suspended, replaced by another one, and continued
	Idle     int           // how often weir is killed while nothing is queued
	Power    bool          // killed, and its flight recorder is set back
	Memory   int           // weir's memory limit in MiB; 0: none
	Restore  bool          // the store is copied, another weir continues with it, and the copy is restored
	Flip     *flip         // bytes of the store are flipped; nil: none
}

// flip says how a store is damaged.
type flip struct {
	Orderly bool   // weir is stopped in order, not killed
	Seed    uint64 // determines what is damaged
}

// Event is a fault other than the end of a life.
type Event struct {
	Kind  Kind
	After float64       // when this part of the lives is over, 0 to 1
	Pause time.Duration // before the event
	Last  time.Duration
	Toxic Toxic
}

// Plan is what a run does to weir. The same options make the same plan.
type Plan struct {
	Lives   []Life
	Events  []Event
	Strikes []Strike // of a fleet, which has neither lives nor events
	Changes []Change // of the configuration
}

// New makes the plan of a run.
func New(o *Options) *Plan {
	r := rand.New(rand.NewPCG(o.Seed, 0x7765697274))
	if o.IsFleet() {
		return &Plan{Strikes: newStrikes(r, o), Changes: newChanges(r, o)}
	}
	p := &Plan{}
	points := o.Points
	if len(points) == 0 && o.Hooked {
		points = slices.DeleteFunc(fault.Points(), func(p fault.Point) bool { return !reached(p, o) })
		r.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	}
	chosen := 0
	for n := range o.WorkerKills {
		l := Life{Delay: between(r, 50*time.Millisecond, 1500*time.Millisecond), Calls: r.IntN(4) > 0}
		switch {
		case len(points) > 0 && (n%2 == 0 || len(o.Points) > 0):
			point := points[chosen%len(points)]
			nth := 1 + r.IntN(30)
			if point.Rare() {
				nth = 1 + r.IntN(2)
			}
			l.Order = fault.Order{Point: point, Nth: nth}
			chosen++
		case r.IntN(8) == 0:
			l.Early, l.Delay = true, between(r, 0, 400*time.Millisecond)
		}
		p.Lives = append(p.Lives, l)
	}
	for range o.Takeovers {
		at := r.IntN(len(p.Lives) + 1)
		p.Lives = slices.Insert(p.Lives, at, Life{Takeover: true, Calls: true, Delay: between(r, 500*time.Millisecond, 1500*time.Millisecond)})
	}
	for range o.PowerLosses {
		at := r.IntN(len(p.Lives) + 1)
		l := Life{Power: true, Calls: true, Delay: between(r, 50*time.Millisecond, 1500*time.Millisecond)}
		if len(points) > 0 {
			l.Order = fault.Order{Point: fault.CallSent, Nth: 1 + r.IntN(30)}
		}
		p.Lives = slices.Insert(p.Lives, at, l)
	}
	for left := o.IdleKills; left > 0; left -= idleInARow {
		at := r.IntN(len(p.Lives) + 1)
		p.Lives = slices.Insert(p.Lives, at, Life{Idle: min(left, idleInARow), Delay: between(r, 100*time.Millisecond, time.Second)})
	}
	for range o.MemoryLimits {
		at := r.IntN(len(p.Lives) + 1)
		l := Life{Memory: memoryLimits[r.IntN(len(memoryLimits))], Calls: true, Delay: between(r, 2*time.Second, 4*time.Second)}
		p.Lives = slices.Insert(p.Lives, at, l)
	}
	for range o.Restores {
		at := r.IntN(len(p.Lives) + 1)
		p.Lives = slices.Insert(p.Lives, at, Life{Restore: true, Calls: true, Delay: between(r, 300*time.Millisecond, 1500*time.Millisecond)})
	}
	for n := range o.Flips {
		at := r.IntN(len(p.Lives) + 1)
		l := Life{Flip: &flip{n%2 == 0, r.Uint64()}, Calls: true, Delay: between(r, 300*time.Millisecond, 1500*time.Millisecond)}
		p.Lives = slices.Insert(p.Lives, at, l)
	}
	p.addEvents(r, o)
	p.Changes = newChanges(r, o)
	return p
}

// reached reports whether a run with these options reaches a point.
func reached(p fault.Point, o *Options) bool {
	switch p {
	case fault.LeaseStored:
		return o.Server == External
	case fault.LimitsStored:
		return o.Takeovers == 0 // the api has a shared limit
	case fault.UnknownFound, fault.IntentStored, fault.LetterKept:
		return !o.Idempotent
	}
	return true
}

func (p *Plan) addEvents(r *rand.Rand, o *Options) {
	add := func(n int, make func() Event) {
		for range n {
			e := make()
			e.After, e.Pause = r.Float64(), between(r, 100*time.Millisecond, 1500*time.Millisecond)
			p.Events = append(p.Events, e)
		}
	}
	add(o.ServerKills, func() Event { return Event{Kind: KillServer, Last: between(r, 0, 500*time.Millisecond)} })
	add(o.Stops, func() Event {
		if o.Server == External && r.IntN(2) == 0 {
			return Event{Kind: StopServer, Last: between(r, time.Second, 4*time.Second)}
		}
		// Longer than the api's timeout; half of them longer than any right to call.
		last := between(r, CallTimeout+500*time.Millisecond, CallTimeout+1500*time.Millisecond)
		if r.IntN(2) == 0 {
			last = between(r, 7*time.Second, 8*time.Second)
		}
		return Event{Kind: StopWorker, Last: last}
	})
	add(o.Cuts, func() Event {
		return Event{Kind: CutNetwork, Last: between(r, 300*time.Millisecond, 2*time.Second), Toxic: toxics[r.IntN(len(toxics))]}
	})
	add(o.Revocations, func() Event { return Event{Kind: Revoke, Last: between(r, 500*time.Millisecond, 2*time.Second)} })
	add(o.DiskFulls, func() Event { return Event{Kind: FillDisk, Last: between(r, time.Second, 3*time.Second)} })
	slices.SortStableFunc(p.Events, func(a, b Event) int {
		switch {
		case a.After < b.After:
			return -1
		case a.After > b.After:
			return 1
		}
		return 0
	})
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

package torture

import (
	"math/rand/v2"
	"slices"
	"time"

	"weir/bucket/fault"
)

// kind is a kind of fault.
type kind string

// The faults other than the ends of weir itself.
const (
	killServer kind = "kill -9 of the server"
	stopWorker kind = "SIGSTOP of weir"
	stopServer kind = "SIGSTOP of the server"
	cutNetwork kind = "connections to the api slow or cut"
	fillDisk   kind = "full disk"
	revoke     kind = "credentials revoked"
)

// life is one run of weir, and its end.
type life struct {
	order    fault.Order   // where weir must kill itself
	delay    time.Duration // without order: time to the kill, after weir is ready or has called; if early, after its start
	early    bool          // killed while it starts
	calls    bool          // the end waits for a call
	takeover bool          // weir is suspended, replaced by another one, and continued
	idle     int           // how often weir is killed while nothing is queued
	power    bool          // killed, and its flight recorder is set back
	memory   int           // weir's memory limit in MiB; 0: none
	restore  bool          // the store is copied, another weir continues with it, and the copy is restored
	flip     *flip         // bytes of the store are flipped; nil: none
}

// flip says how a store is damaged.
type flip struct {
	orderly bool   // weir is stopped in order, not killed
	seed    uint64 // determines what is damaged
}

// event is a fault other than the end of a life.
type event struct {
	kind  kind
	after float64       // when this part of the lives is over, 0 to 1
	pause time.Duration // before the event
	last  time.Duration
	toxic toxic
}

// plan is what a run does to weir. The same options make the same plan.
type plan struct {
	lives   []life
	events  []event
	strikes []strike // of a fleet, which has neither lives nor events
	changes []change // of the configuration
}

func newPlan(o *Options) *plan {
	r := rand.New(rand.NewPCG(o.Seed, 0x7765697274))
	if o.isFleet() {
		return &plan{strikes: newStrikes(r, o), changes: newChanges(r, o)}
	}
	p := &plan{}
	points := o.Points
	if len(points) == 0 && o.Hooked {
		points = slices.DeleteFunc(fault.Points(), func(p fault.Point) bool { return !reached(p, o) })
		r.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	}
	chosen := 0
	for n := range o.WorkerKills {
		l := life{delay: between(r, 50*time.Millisecond, 1500*time.Millisecond), calls: r.IntN(4) > 0}
		switch {
		case len(points) > 0 && (n%2 == 0 || len(o.Points) > 0):
			point := points[chosen%len(points)]
			nth := 1 + r.IntN(30)
			if point.Rare() {
				nth = 1 + r.IntN(2)
			}
			l.order = fault.Order{Point: point, Nth: nth}
			chosen++
		case r.IntN(8) == 0:
			l.early, l.delay = true, between(r, 0, 400*time.Millisecond)
		}
		p.lives = append(p.lives, l)
	}
	for range o.Takeovers {
		at := r.IntN(len(p.lives) + 1)
		p.lives = slices.Insert(p.lives, at, life{takeover: true, calls: true, delay: between(r, 500*time.Millisecond, 1500*time.Millisecond)})
	}
	for range o.PowerLosses {
		at := r.IntN(len(p.lives) + 1)
		l := life{power: true, calls: true, delay: between(r, 50*time.Millisecond, 1500*time.Millisecond)}
		if len(points) > 0 {
			l.order = fault.Order{Point: fault.CallSent, Nth: 1 + r.IntN(30)}
		}
		p.lives = slices.Insert(p.lives, at, l)
	}
	for left := o.IdleKills; left > 0; left -= idleInARow {
		at := r.IntN(len(p.lives) + 1)
		p.lives = slices.Insert(p.lives, at, life{idle: min(left, idleInARow), delay: between(r, 100*time.Millisecond, time.Second)})
	}
	for range o.MemoryLimits {
		at := r.IntN(len(p.lives) + 1)
		l := life{memory: memoryLimits[r.IntN(len(memoryLimits))], calls: true, delay: between(r, 2*time.Second, 4*time.Second)}
		p.lives = slices.Insert(p.lives, at, l)
	}
	for range o.Restores {
		at := r.IntN(len(p.lives) + 1)
		p.lives = slices.Insert(p.lives, at, life{restore: true, calls: true, delay: between(r, 300*time.Millisecond, 1500*time.Millisecond)})
	}
	for n := range o.Flips {
		at := r.IntN(len(p.lives) + 1)
		l := life{flip: &flip{n%2 == 0, r.Uint64()}, calls: true, delay: between(r, 300*time.Millisecond, 1500*time.Millisecond)}
		p.lives = slices.Insert(p.lives, at, l)
	}
	p.addEvents(r, o)
	p.changes = newChanges(r, o)
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

func (p *plan) addEvents(r *rand.Rand, o *Options) {
	add := func(n int, make func() event) {
		for range n {
			e := make()
			e.after, e.pause = r.Float64(), between(r, 100*time.Millisecond, 1500*time.Millisecond)
			p.events = append(p.events, e)
		}
	}
	add(o.ServerKills, func() event { return event{kind: killServer, last: between(r, 0, 500*time.Millisecond)} })
	add(o.Stops, func() event {
		if o.Server == External && r.IntN(2) == 0 {
			return event{kind: stopServer, last: between(r, time.Second, 4*time.Second)}
		}
		// Longer than the api's timeout; half of them longer than any right to call.
		last := between(r, callTimeout+500*time.Millisecond, callTimeout+1500*time.Millisecond)
		if r.IntN(2) == 0 {
			last = between(r, 7*time.Second, 8*time.Second)
		}
		return event{kind: stopWorker, last: last}
	})
	add(o.Cuts, func() event {
		return event{kind: cutNetwork, last: between(r, 300*time.Millisecond, 2*time.Second), toxic: toxics[r.IntN(len(toxics))]}
	})
	add(o.Revocations, func() event { return event{kind: revoke, last: between(r, 500*time.Millisecond, 2*time.Second)} })
	add(o.DiskFulls, func() event { return event{kind: fillDisk, last: between(r, time.Second, 3*time.Second)} })
	slices.SortStableFunc(p.events, func(a, b event) int {
		switch {
		case a.after < b.after:
			return -1
		case a.after > b.after:
			return 1
		}
		return 0
	})
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}

package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// Share is what a key gets in the long run while the keys that have jobs now keep having some. Max-min fairness
// divides what they share: a key that wants less leaves the rest to the others.
type Share struct {
	PerSecond float64 `json:"calls_per_s"`     // calls
	Limit     string  `json:"limit,omitempty"` // what binds it: a shared limit, "in_flight" for its own, or "" for its own rate
	Of        float64 `json:"of,omitempty"`    // calls per second of that limit, over all keys
	Keys      int     `json:"keys,omitempty"`  // keys that have jobs to call and share it
	// Stopped says that the key gets nothing now: its wait ends later than its next calls would come, or its end is
	// unknown.
	Stopped bool `json:"stopped,omitempty"`
}

// InFlightLimit is the Limit of a Share that is bound by the key's own limit of calls in flight.
const InFlightLimit = "in_flight"

// Demand is how many calls the keys that have jobs would make if they shared nothing. The caller adds queue by queue,
// because there may be many.
type Demand struct {
	keys    int
	tenants map[string]map[float64]int // for each tenant, the number of keys that want this many calls per second
}

// AddTo adds a queue's demand, if it may be called now.
func (v View) AddTo(d *Demand, q *KeyQueue) {
	if q.uncalled() == q.Early(v.now) || v.s.Holds.of(q) > v.now.Add(limits.LongWait) {
		return
	}
	if d.tenants == nil {
		d.tenants = map[string]map[float64]int{}
	}
	name := v.s.policy.Rules.Tenant(q.Key)
	if d.tenants[name] == nil {
		d.tenants[name] = map[float64]int{}
	}
	d.tenants[name][v.wants(q.Limits).PerSecond]++
	d.keys++
}

// wants returns what a key would get if it shared nothing.
func (v View) wants(limits *bucket.KeyLimits) Share {
	own := Share{PerSecond: v.s.policy.Rules.Interval(limits.Rate).PerSecond()}
	if took := v.s.Pipe.lasted; took > 0 {
		if running := float64(limits.InFlight) / took.Seconds(); running < own.PerSecond {
			return Share{PerSecond: running, Limit: InFlightLimit}
		}
	}
	return own
}

// ShareOf returns the share that a key gets when it competes with the keys in d. d must include the key's own demand.
func (v View) ShareOf(key string, d *Demand) Share {
	share := v.shareOf(key, d)
	if q := v.s.Find(key); q != nil && !q.Empty() {
		share.Stopped = share.isStopped(v.waits(q), v.now)
	}
	return share
}

// isStopped reports whether a key's wait lasts longer than a few turns of its share take, or has no known end.
func (s *Share) isStopped(w Waiting, now bucket.Micros) bool {
	const turns = 2
	switch w.For {
	case WaitPaused, WaitStop, WaitLimiter:
		return true
	case WaitHeld, WaitAPIHeld:
		return w.Until == nil || s.outlasts(*w.Until, now, turns)
	case WaitLimit: // a wait without an end is for calls in flight
		return w.Until != nil && s.outlasts(*w.Until, now, turns)
	case WaitNothing, WaitRate, WaitPack, WaitInFlight, WaitSlowed, WaitNotBefore, WaitRetry, WaitRoom, WaitReading, WaitClearing:
	}
	return false
}

// outlasts reports whether the wait until a time is longer than a second, and longer than turns calls of the key's
// share take.
func (s *Share) outlasts(until time.Time, now bucket.Micros, turns float64) bool {
	wait := now.Until(bucket.MicrosOf(until))
	return wait > time.Second && wait.Seconds()*s.PerSecond > turns
}

func (v View) shareOf(key string, d *Demand) Share {
	share := v.wants(v.s.policy.LimitsOf(key))
	if d.keys == 0 {
		return share
	}
	own, tenant := share.PerSecond, v.s.policy.Rules.Tenant(key)
	for i := range v.s.Shared {
		l := &v.s.Shared[i]
		all := l.PerSecond(v.s.Pipe.lasted)
		if l.Shadow || all <= 0 {
			continue
		}
		var tenants []wanted
		for _, keys := range d.tenants {
			sum := 0.0
			for _, each := range slices.Sorted(maps.Keys(keys)) { // a sum of floats depends on their order
				sum += each * float64(keys[each])
			}
			tenants = append(tenants, wanted{sum, 1})
		}
		var keys []wanted
		for each, n := range d.tenants[tenant] {
			keys = append(keys, wanted{each, n})
		}
		if level := min(own, divide(divide(all, tenants), keys)); level < share.PerSecond {
			share = Share{PerSecond: level, Limit: l.Name, Of: all, Keys: d.keys}
		}
	}
	return share
}

// wanted is the demand of each of n keys or tenants.
type wanted struct {
	each float64
	n    int
}

// divide shares all among demands: those that want less than an equal part get only what they want. It returns the most
// that each of the others may get. If everything wanted fits, it returns the largest demand plus what is left over.
func divide(all float64, of []wanted) float64 {
	slices.SortFunc(of, func(a, b wanted) int { return cmp.Compare(a.each, b.each) })
	left := 0
	for _, w := range of {
		left += w.n
	}
	for _, w := range of {
		if level := all / float64(left); w.each >= level {
			return level
		}
		all -= w.each * float64(w.n)
		left -= w.n
	}
	return all + mostOf(of)
}

// mostOf returns the largest single demand of the sorted demands.
func mostOf(of []wanted) float64 {
	if len(of) == 0 {
		return 0
	}
	return of[len(of)-1].each
}

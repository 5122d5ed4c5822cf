package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule/backlog"
	"weir/dispatcher/schedule/limits"
)

// A forecast estimates when a job should be called, without looking at any other key's jobs. It is computed from the
// key's own pace and calls in flight, from holds, and from the state of the shared limits: which one binds until when,
// what is left of it, and how many jobs and keys wait for it. Receipts, max_wait, deadlines and `weir show` use it.
// Unknown quantities count as zero, so that the intake refuses a job as too late only for known reasons. A forecast
// assumes that waiting jobs take what recent calls took, whatever their own costs are. Calls that are not settled yet
// count with what they reserved. A forecast includes neither retries nor pushback. Under a shared rate it may be off by
// one call of each key.

// Place is a job's place in its queue, as far as the intake knows.
type Place struct {
	Key      string
	Priority bucket.Priority
	Position int // among the unfinished jobs of its key, counted from 1
	// Others is the number of jobs of other keys, and Keys the number of keys with jobs. Both may be too low.
	Others, Keys int
	NotBefore    bucket.Micros // the job must not be called before; 0: at once
}

// ETA returns when the call of the job at a place should start; 0 if its key is paused without an end.
func (v View) ETA(p Place) bucket.Micros { return forecast{v, limits.Likely}.of(p) }

// Soonest returns when the call of the job at a place can start at best; 0 if its key is paused without an end. It
// assumes that all calls before it, running ones too, take nothing from the limits whose units answers tell. A job
// whose deadline is earlier is lost, however these calls are settled.
func (v View) Soonest(p Place) bucket.Micros { return forecast{v, limits.BestCase}.of(p) }

// forecast estimates by a View when calls should start.
type forecast struct {
	View
	outlook limits.Outlook
}

// of returns when the call of the job at a place should start; 0 if its key is paused without an end.
func (v forecast) of(p Place) bucket.Micros {
	q, tat := v.s.Queues.byKey[p.Key], v.KnownTAT(p.Key)
	if q != nil {
		tat = max(tat, q.TAT)
		if p.Position -= len(q.polled) + q.under(granted, calling, settling); p.Position < 1 && p.NotBefore <= v.now {
			return max(v.now, q.Jobs.lastGranted()) // it has its slot, or is past it
		}
		p.Position = max(1, p.Position)
	}
	var own backlog.Appointment
	if p.NotBefore > v.now {
		own = backlog.LastAt(p.NotBefore)
	}
	if at := v.at(q, p, tat, own); at != Never {
		return at
	}
	return 0
}

// at returns when the call at a place should start, Never if a pause has no end. The place's position counts only
// calls without a slot. q is nil for a key without jobs. own is the job's appointment if it is not due yet.
func (v forecast) at(q *KeyQueue, p Place, tat bucket.Micros, own backlog.Appointment) bucket.Micros {
	key, from := v.s.policy.LimitsOf(p.Key), max(v.now, v.s.Holds.held, v.s.Holds.breaker.until, v.s.Holds.governor.earliest())
	if pause := v.s.Holds.paused.of(p.Key); pause != nil {
		if from = max(from, pause.until()); from == Never {
			return Never
		}
	}
	if q != nil {
		key = q.Limits
		from = max(from, q.brake.held, q.crowded(), q.brake.earliest(), v.headRests(q, p.Priority, from))
		if blocked, _ := q.seats.Waits(); blocked {
			from = max(from, v.reopens(v.s.gate.by, v.s.gate.opens, from))
		}
	}
	n := v.s.policy.calls(p.Position)
	at := v.s.policy.slot(key, tat, from, n)
	at = max(at, v.afterFlight(q, key.InFlight, n, from))
	ahead := float64(v.turnsBefore(q, p))
	if packs := v.s.policy.Packs; packs != nil {
		ahead /= float64(packs.Jobs) // at least
	}
	for i := range v.s.Shared {
		l, shut := &v.s.Shared[i], bucket.Micros(0)
		if l.Shadow {
			continue
		}
		if v.s.gate.by == l.Name && (v.s.turns.Waiting() > 0 || v.s.gate.isShut(from)) {
			shut = max(from, v.s.gate.opens)
		}
		at = max(at, l.After(ahead, from, shut, v.s.Pipe.calls, v.s.Pipe.lasted, v.outlook))
	}
	at = max(at, v.s.gate.replica.After(ahead, from))
	if at = max(at, own.At); own.At != 0 && q != nil && q.waits.HasEarly() {
		return v.afterEarlier(q, own, at)
	}
	return at
}

// headRests returns until when the queue's first job of a priority without a slot rests, 0 if it does not rest. The
// jobs of that priority behind it do not overtake it.
func (v forecast) headRests(q *KeyQueue, of bucket.Priority, from bucket.Micros) bucket.Micros {
	for _, j := range q.Jobs {
		if j.Priority == of && j.Phase == resting && j.First() && j.NotBefore < Never-1 {
			if j.limited {
				return v.reopens(q.binds, j.NotBefore, from)
			}
			return j.NotBefore
		}
	}
	return 0
}

// reopens returns when the limit of this name should let a call pass. The store has refused it until shut.
func (v forecast) reopens(limit string, shut, from bucket.Micros) bucket.Micros {
	if l := v.s.Shared.Named(limit); l != nil {
		return l.Reopens(shut, from, v.s.Pipe.lasted, v.outlook)
	}
	return shut
}

// afterFlight returns when the queue's n-th call without a slot should find room, if the key may have most calls in
// flight. It returns 0 if there is room now, or if no call has ended yet.
func (v forecast) afterFlight(q *KeyQueue, most int64, n int, from bucket.Micros) bucket.Micros {
	if v.s.Pipe.lasted == 0 {
		return 0
	}
	flying, first := int64(0), Never
	if q != nil {
		flying, first = q.Jobs.flying(v.s.Pipe.lasted)
		most -= min(int64(q.held), most-1) // nothing tells when an operation ends
	}
	place := flying + int64(n)
	if place <= most {
		return 0
	}
	if flying == 0 {
		first = from.Add(v.s.Pipe.lasted)
	}
	waves := (place-1)/most - 1
	return limits.Later(max(first, from), float64(waves), float64(v.s.Pipe.lasted.Microseconds()))
}

// turnsBefore returns how many calls of the api are made before the one at a place. At what keys share, the priorities
// take turns by their weights, the tenants of a priority take turns, and so do the keys of a tenant. There cannot be
// more such calls than waiting jobs.
func (v forecast) turnsBefore(q *KeyQueue, p Place) int {
	if v.s.turns.AreShared() || p.Priority != bucket.Normal {
		return v.turnsOfAll(q, p)
	}
	return v.turnsWithin(q, p, bucket.Normal)
}

// turnsWithin is turnsBefore for an api that has only jobs of one priority.
func (v forecast) turnsWithin(q *KeyQueue, p Place, of bucket.Priority) int {
	rivals, keys, own := v.s.turns.Rivals(q, of, v.s.policy.Rules.Tenant(p.Key)), max(len(v.s.Queues.byKey), p.Keys), 0
	early := v.s.census.early // jobs of other keys that are not due yet: no job waits behind them
	if q != nil {
		own = q.uncalled() - q.under(granted, calling, settling)
		early -= q.waits.NotDue()
	} else {
		keys++
	}
	called := v.s.Pipe.calls + v.s.Pipe.settling + v.s.Pipe.polling.jobs
	unread := max(0, p.Others-(v.s.census.unfinished-own))
	// Calls before the key's own next one: of jobs not read yet, of jobs being made ready, and of some that wait.
	first := unread + max(0, min(v.s.Pipe.staged, len(v.s.Queues.byKey))-rivals.Asking) + rivals.Before
	if rivals.Tenants > 1 || v.s.turns.AreShared() {
		keys = rivals.Keys
	}
	others := max(v.s.census.unfinished-early-called-own+unread, 0)
	return min((first+(p.Position-1)*keys)*rivals.Tenants, others+p.Position-1)
}

// turnsOfAll is turnsBefore while there are, or were, jobs of several priorities. While the earlier calls of the
// place's own priority are made, other priorities that have jobs make calls too, as many as their weights say. Jobs
// that the schedule has not received do not count before an urgent job, since their priorities are not known.
func (v forecast) turnsOfAll(q *KeyQueue, p Place) int {
	w, depth, waiting, sum, all := v.s.policy.Rules.Weights, 0, 0, v.s.policy.Rules.Weights.Of(p.Priority), 0
	var others [len(bucket.Priorities)]int // jobs of other keys that wait and are due
	for i, of := range bucket.Priorities {
		own := 0
		if q != nil && q.waits.Has(of) {
			own = q.waits.Of(of).Due() + q.Ungranted(of)
		}
		waits, onWay := v.s.turns.Callable(of)
		others[i] = max(0, waits+onWay-own)
		if all += others[i]; of != p.Priority && own > 0 {
			waiting, sum = waiting+own, sum+w.Of(of)
		}
	}
	if q != nil {
		depth = q.uncalled()
	}
	place, unread := p, max(0, p.Others-(v.s.census.unfinished-depth))
	if p.Priority == bucket.High {
		place.Others, unread = 0, 0
	}
	// Its position among the key's jobs of its priority follows from the weights.
	place.Position = max(1, p.Position-waiting, int((int64(p.Position)*w.Of(p.Priority)+sum-1)/sum))
	same := others[p.Priority-bucket.High] + unread + place.Position - 1
	if v.s.turns.Has(p.Priority) {
		same = min(same, v.turnsWithin(q, place, p.Priority))
	}
	before := same + p.Position - place.Position
	for i, of := range bucket.Priorities {
		if of != p.Priority {
			before += min(others[i], int((int64(same)*w.Of(of)+w.Of(p.Priority)-1)/w.Of(p.Priority)))
		}
	}
	return min(before, all+unread+p.Position-1)
}

// Unread describes the early jobs of a key that the intake has stored and the schedule has not received yet.
type Unread struct {
	Jobs  int
	First bucket.Micros // none of them may be called before
}

// PlaceFree returns when a place in the key's bucket should become free, which is when the first of its calls ends; 0
// if that is unknown. While the schedule has not received all jobs of the bucket, it assumes that one of the others may
// be called at once, unless early jobs alone fill the bucket.
func (v View) PlaceFree(key string, unread Unread) bucket.Micros {
	q, took := v.s.Queues.byKey[key], v.s.Pipe.lasted
	if took == 0 { // no call has ended yet: assume that one takes until the next slot
		took = min(v.s.policy.Rules.Interval(v.s.policy.LimitsOf(key).Rate).Duration(), time.Second)
	}
	if q != nil {
		if q.Jobs.count(settling) > 0 {
			return v.now
		}
		if n, first := q.Jobs.flying(took); n > 0 {
			return max(v.now, first)
		}
		if q.uncalled() == 0 && len(q.polled) > 0 {
			return 0 // nothing tells when an operation ends
		}
	}
	at := v.ETA(Place{Key: key, Position: 1})
	if at == 0 {
		return 0
	}
	early, first := unread.Jobs, Never
	if early > 0 {
		first = unread.First
	}
	if q != nil && q.waits.HasEarly() {
		early, first = early+q.waits.NotDue(), min(first, q.waits.FirstDue())
	}
	if early > 0 && int64(early) >= v.s.policy.LimitsOf(key).Capacity {
		at = max(at, first) // none of its jobs may be called sooner
	}
	return at.Add(took)
}

// afterEarlier returns when a queue's early job should be called. eta is when it would be called without the jobs that
// come due before it. These are called one after the other at the key's own rate. The jobs that come due last decide,
// so afterEarlier begins with them, and looks at no more than about backlog.MostAppointments.
func (v forecast) afterEarlier(q *KeyQueue, own backlog.Appointment, eta bucket.Micros) bucket.Micros {
	most, ahead := q.waits.EarlyBefore(own), 1
	for l := range q.waits.EarlyBackward(own) {
		ahead++
		eta = max(eta, v.s.policy.slot(q.Limits, 0, l.At, ahead))
		if ahead > backlog.MostAppointments || v.s.policy.slot(q.Limits, 0, l.At, most+1) <= eta {
			break
		}
	}
	return eta
}

// ofQueue forecasts the queue's n-th call without a slot, counted from 1. of is the priority of that call's job. own is
// the job's appointment if the job is early.
func (v View) ofQueue(q *KeyQueue, of bucket.Priority, n int, own backlog.Appointment) bucket.Micros {
	return forecast{v, limits.Likely}.at(q, Place{Key: q.Key, Priority: of, Position: n}, q.TAT, own)
}

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
	if q := v.s.Queues.Find(key); q != nil && !q.Empty() {
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

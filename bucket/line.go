package bucket

import (
	"math"
	"slices"
	"time"
)

// Turns of replicas. Several processes, called replicas here, may share a Store. Each replica decides the order of its
// own keys. When a shared limit is used up, the Store decides which replica is next, so that each key gets what it
// would get if one process called all keys.
//
// The order is start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) over the replicas. Every tenant with
// waiting keys has the weight one. If jobs of several priorities wait, the weights of the priorities divide the turns,
// and the tenants of one priority divide its part evenly. A replica that has a part of a tenant's waiting keys gets the
// same part of the tenant's weight. A call advances its replica's virtual time by what the call takes of the limits,
// divided by the replica's weight. A slot goes to the replica with the least virtual time. A replica that was away gets
// no credit for that time.
//
// A Store only answers and never calls a replica. So it tells a replica that may not have a slot when to ask again. It
// keeps the slot for the replicas before it only if they are expected before the slot's time, or wait for a dear call:
// a call that takes more than is left. A replica that does not ask in time, lateBy and its horizon included, lets the
// next one pass, and keeps at most one call of its turn. The Store forgets a replica a second after it was expected. So
// turns never hold a slot for a dead replica for longer than lateBy and the horizon with which it asked, or for a
// second if it waited for a dear call. No slot is held if no replica is behind.
//
// A slot is kept only while the calls of all waiting keys do not fit within the horizon. A replica may be ahead of its
// turn by as much as its horizon lets it ask ahead, and by at most half a call of each of its keys. Otherwise a fast
// limit would grant only one call for each round trip.
//
// Turns can only refuse a slot that the limits allow. They never change the counts of limits.
//
// The apis of an account share its Store, and take turns there in the same way. The replicas of an api then divide the
// weight of the api. So the apis get turns by their weights, however many replicas, tenants and keys each has. At a
// limit of one api alone, only the replicas of that api take turns. A replica that waits for such a limit keeps no slot
// from other apis, and keeps its place among the replicas of its api.

// Line says how many keys wait for shared limits at a replica that asks for slots.
type Line struct {
	Replica string // names the replica, for as long as it runs
	// Tenants has an entry for each tenant and priority: how many of the tenant's keys wait with jobs of the priority.
	// Keys that ask now count as waiting. There are at most MostTenants entries.
	Tenants []Waiting
	More    int // further tenants with waiting keys; each counts as a tenant that waits at no other replica
	// Keys is the number of waiting keys. It is less than the sum of Tenants and More if some keys wait with jobs of
	// several priorities. 0 stands for that sum.
	Keys    int
	Weights Weights // of the priorities
	// Held says that the replica itself keeps its other keys from asking in this round. The store keeps no slot for
	// them.
	Held bool
	// API and Weight are those of the Membership of an api that has an account.
	API    string
	Weight int64
}

// Waiting is how many of a tenant's keys wait at a replica with jobs of a priority.
type Waiting struct {
	Tenant   string
	Priority Priority
	Keys     int
}

// whose returns the tenant and the priority, without the number of keys.
func (w Waiting) whose() Waiting { return Waiting{Tenant: w.Tenant, Priority: w.Priority} }

// MostTenants bounds the entries of a Line.
const MostTenants = 32

// mostReplicas bounds the replicas that take turns. If one more asks, the Store forgets the replica that has not asked
// for the longest time.
const mostReplicas = 64

const (
	goneAfter = Micros(time.Second / time.Microsecond)            // how long after it was expected a replica is forgotten
	lateBy    = Micros(5 * time.Millisecond / time.Microsecond)   // how late a replica may come, beside its horizon
	turnPoll  = Micros(100 * time.Microsecond / time.Microsecond) // the shortest wait for a turn
	// dearPoll is the longest wait for a dear call while other replicas wait. It is short enough for the call's job to
	// stay ready.
	dearPoll = goneAfter / 5
)

// scope says which replicas take turns.
type scope int8

const (
	theAccount scope = iota // the replicas of all apis of the account
	theAPI                  // the replicas of one api
)

// scopeOf returns which replicas take turns at a limit.
func scopeOf(l *Limit) scope {
	if l.Account != "" {
		return theAccount
	}
	return theAPI
}

// lines holds the latest Lines of the replicas of an api, or of an account. It is empty while no replica waits.
type lines struct {
	clock float64     // virtual time of the replica that was granted a slot last
	all   []*standing // in the order in which they came
	own   *standing   // of the replica that asks now; nil if the asks have no Line

	// What waits at all replicas, the asking one included.
	keys map[ofAPI]int // waiting keys of each tenant and priority
	apis []lined       // what waits of each api

	due    Micros // when the asking replica asks again; 0: it does not wait
	kept   kept
	limit  string // the limit whose units are kept
	later  bool   // the asking replica waits for a quota's next period
	held   bool   // Line.Held
	within scope  // the scope of the limit that the asking replica waits for
}

// ofAPI is a tenant of an api with a priority.
type ofAPI struct {
	api string
	Waiting
}

// lined is what waits at all replicas of one api.
type lined struct {
	api     string
	tenants [len(Priorities)]int // of each priority
	calls   int64                // one of each key
	weights float64
	parts   float64 // the sum of its replicas' weights before the api's weight is divided among them
}

// kept is what the Store keeps for a replica whose turn it is. Other replicas do not get it, even for slots before the
// time at which the replica is expected to ask.
type kept int8

const (
	keptNothing kept = iota
	keptPermit       // a permit may become free at any time
	keptUnits        // of a rate that has less left than the replica's call takes; else cheaper calls would take them
)

// standing is one replica's place.
type standing struct {
	replica string
	api     string
	part    int64   // the weight of the api
	taken   float64 // virtual time: what its calls have taken, divided by its weight
	served  int64   // numbers its last call among those of all replicas
	seen    Micros
	due     Micros // when it asks again; 0: nothing waits there
	kept    kept
	limit   string // the limit whose units are kept
	later   bool   // it waits for a quota's next period
	horizon Micros
	tenants []Waiting
	more    int
	waits   int // Line.Keys
	keys    int64
	weight  float64
	within  scope   // the scope of the limit that it waits for
	parts   Weights // the weights of the priorities
}

// begin notes the Line of the replica that is about to ask, and how far ahead it asks.
func (l *lines) begin(now Micros, line *Line, horizon Micros) {
	l.all = slices.DeleteFunc(l.all, func(s *standing) bool { return now > max(s.seen, s.due)+goneAfter })
	at := slices.IndexFunc(l.all, func(s *standing) bool { return s.replica == line.Replica })
	if at < 0 {
		if len(l.all) == mostReplicas {
			l.forgetOldest()
		}
		at, l.all = len(l.all), append(l.all, &standing{replica: line.Replica})
	}
	own := l.all[at]
	if own.due == 0 {
		own.taken = max(own.taken, l.clock)
	}
	own.seen, own.due, own.later, own.horizon, own.tenants, own.more = now, now, false, horizon, line.Tenants, line.More
	own.waits, own.within, own.parts, own.api, own.part = line.Keys, theAccount, line.Weights, line.API, max(1, line.Weight)
	l.own, l.due, l.kept, l.later, l.held, l.within = own, 0, keptNothing, false, line.Held, theAccount
	l.weigh(now)
}

func (l *lines) forgetOldest() {
	oldest := 0
	for i, s := range l.all {
		if s.seen < l.all[oldest].seen {
			oldest = i
		}
	}
	l.all = slices.Delete(l.all, oldest, oldest+1)
}

// rests reports whether a replica waits for a period that does not begin soon. Until then none of its keys can be
// called.
func (s *standing) rests(now Micros) bool { return s.later && s.due > now+goneAfter }

// of returns the entry of an api.
func (l *lines) of(api string) *lined {
	for i := range l.apis {
		if l.apis[i].api == api {
			return &l.apis[i]
		}
	}
	l.apis = append(l.apis, lined{api: api})
	return &l.apis[len(l.apis)-1]
}

// weigh computes the weights of all replicas that wait. Keys of replicas that rest do not count.
func (l *lines) weigh(now Micros) {
	l.keys, l.apis = map[ofAPI]int{}, l.apis[:0]
	for _, s := range l.all {
		if s.due == 0 || s.rests(now) {
			continue
		}
		a := l.of(s.api)
		a.tenants[Normal-High] += s.more
		for _, t := range s.tenants {
			if _, known := l.keys[s.whose(t)]; !known {
				a.tenants[t.Priority-High]++
			}
			l.keys[s.whose(t)] += t.Keys
		}
	}
	for _, s := range l.all {
		if s.due == 0 {
			continue
		}
		a := l.of(s.api)
		each := a.each(s.parts)
		s.keys, s.weight = int64(s.more), float64(float64(s.more)*each[Normal-High]) // rounded here, as in the script
		for _, t := range s.tenants {
			s.keys += int64(t.Keys)
			all := l.keys[s.whose(t)]
			if s.rests(now) {
				all += t.Keys
			}
			s.weight += float64(float64(t.Keys) / float64(all) * each[t.Priority-High])
		}
		if s.keys == 0 {
			s.keys, s.weight = 1, 1
		}
		if s.waits > 0 {
			s.keys = int64(s.waits)
		}
		if !s.rests(now) {
			a.parts += s.weight
		}
	}
	for _, s := range l.all {
		if s.due == 0 {
			continue
		}
		a, rests := l.of(s.api), s.rests(now)
		if s.api != "" {
			all := a.parts
			if rests {
				all += s.weight
			}
			s.weight = float64(float64(s.part)*s.weight) / all
		}
		if !rests {
			a.calls += s.keys
			a.weights += s.weight
		}
	}
}

// part returns which part of the account's turns the asking replica's api has, in thousandths.
func (l *lines) part() int {
	own, all := l.weights(theAPI), l.weights(theAccount)
	if own <= 0 || all <= own {
		return 1000
	}
	return max(1, int(math.Floor(1000*own/all+0.5)))
}

// scopes returns the scopes in which the asking replica takes turns.
func (l *lines) scopes() []scope {
	if l.own.api == "" {
		return onlyAPI
	}
	return bothScopes
}

var onlyAPI, bothScopes = []scope{theAPI}, []scope{theAPI, theAccount}

// calls returns how many calls wait in a scope, one of each key.
func (l *lines) calls(within scope) (n int64) {
	for i := range l.apis {
		if within == theAccount || l.apis[i].api == l.own.api {
			n += l.apis[i].calls
		}
	}
	return n
}

// weights returns the sum of the weights of the replicas that wait in a scope.
func (l *lines) weights(within scope) (w float64) {
	for i := range l.apis {
		if within == theAccount || l.apis[i].api == l.own.api {
			w += l.apis[i].weights
		}
	}
	return w
}

// whose returns the tenant and priority of an entry, which all replicas of the api share.
func (s *standing) whose(w Waiting) ofAPI { return ofAPI{s.api, w.whose()} }

// each returns the weight of one tenant, for each priority. It is 1 if all tenants that wait have one priority.
func (a *lined) each(parts Weights) (each [len(Priorities)]float64) {
	kinds, sum, all := 0, int64(0), 0
	for i, p := range Priorities {
		if each[i] = 1; a.tenants[i] > 0 {
			kinds, sum, all = kinds+1, sum+parts.Of(p), all+a.tenants[i]
		}
	}
	if kinds < 2 {
		return each
	}
	for i, p := range Priorities {
		if n := a.tenants[i]; n > 0 {
			each[i] = float64(parts.Of(p)*int64(all)) / float64(sum*int64(n))
		}
	}
	return each
}

// elsewhere returns how many keys of a tenant wait at other replicas with jobs of a priority.
func (l *lines) elsewhere(tenant string, p Priority) int {
	for _, t := range l.own.tenants {
		if t.Tenant == tenant && t.Priority == p {
			return l.keys[l.own.whose(t)] - t.Keys
		}
	}
	return 0
}

// whole returns Answer.Whole for a priority. It is 0 if nothing with the priority waits at the asking replica.
func (l *lines) whole(p Priority) int {
	part := 0.0
	if p == Normal {
		part = float64(l.own.more)
	}
	for _, t := range l.own.tenants {
		if t.Priority == p {
			part += float64(t.Keys) / float64(l.keys[l.own.whose(t)])
		}
	}
	if part == 0 {
		return 0
	}
	return int(math.Floor(float64(1000*l.of(l.own.api).tenants[p-High])/part + 0.5))
}

// competes reports whether a replica is expected to ask in time for a slot, or the Store keeps a permit or units for
// it.
func (s *standing) competes(now, slot Micros) bool {
	return s.due != 0 && now <= s.until(slot) && (s.kept != keptNothing || s.due <= slot)
}

// until returns the time until which a replica competes for a slot. If the replica is not expected in time, the Store
// keeps a permit or units for it no longer than goneAfter from its last ask.
func (s *standing) until(slot Micros) Micros {
	if s.due <= slot {
		return s.late()
	}
	return min(s.late(), s.seen+goneAfter)
}

// late returns the latest time at which a replica that was told to ask again at due is still in time.
func (s *standing) late() Micros { return s.due + s.horizon + lateBy }

// takesPart reports whether a replica takes turns with another in a scope.
func (s *standing) takesPart(own *standing, within scope) bool {
	if within == theAPI {
		return s.api == own.api
	}
	return s.within == theAccount
}

// isNext reports whether a replica of another api has its turn before own. Of two replicas with the same virtual time,
// the one whose last call is older is next. So apis of one weight take turns one by one in any span.
func (s *standing) isNext(own *standing, same float64) bool {
	return s.api != own.api && s.served < own.served && math.Abs(own.taken-s.taken) <= same
}

// behind says that other replicas come before the asking one for a slot.
type behind struct {
	until Micros   // when the asking replica may ask again; 0: no replica comes before it
	dear  []string // the limits whose units are kept for dear calls of those replicas
}

// before tells whether replicas of a scope come before the asking replica for a slot. Without these replicas, the
// asking one could have the slot at the time from or later. service is what its call takes.
func (l *lines) before(now, slot, from Micros, service float64, within scope) (b behind) {
	own := l.own
	each := service / own.weight
	slack := min(float64(own.horizon)/l.weights(within), float64(own.keys-1)/2*each)
	ahead, first, last := 0.0, maxMicros, Micros(0)
	for _, s := range l.all {
		if s == own || !s.takesPart(own, within) || !s.competes(now, slot) {
			continue
		}
		lead := own.taken - slack - s.taken
		if lead > each/1024 || within == theAccount && s.isNext(own, each/1024) {
			ahead += max(0, lead) * s.weight
			first, last = min(first, s.due), max(last, s.until(slot)+1)
			if s.kept == keptUnits {
				b.dear = append(b.dear, s.limit)
			}
		}
	}
	if last > 0 {
		b.until = max(now+turnPoll, min(max(from, first)+Micros(math.Ceil(min(ahead, 1<<50))), last))
	}
	return b
}

// serve charges the asking replica for a call that got a slot. Replicas that came before it and missed their turn keep
// one call of that turn.
func (l *lines) serve(now, slot Micros, service float64) {
	own := l.own
	for _, s := range l.all {
		if s != own && !s.isApart(own) && s.due != 0 && !s.competes(now, slot) {
			s.taken = max(s.taken, own.taken-service/s.weight)
		}
		own.served = max(own.served, s.served+1)
	}
	l.pass(service)
	l.clock = max(l.clock, own.taken)
	own.taken += service / own.weight
}

// isApart reports whether a replica of another api waits for a limit of that api.
func (s *standing) isApart(own *standing) bool { return s.within == theAPI && s.api != own.api }

// pass charges replicas of other apis that wait for a limit of their own api (isApart). Together, all such replicas of
// an api keep one call of the turns that they miss. They keep their order among each other, because they take turns at
// the api's own limit.
func (l *lines) pass(service float64) {
	own := l.own
	for i := range l.apis {
		a := &l.apis[i]
		weight, taken := 0.0, 0.0
		for _, s := range l.all {
			if s.api == a.api && s.due != 0 && s.isApart(own) {
				weight, taken = weight+s.weight, taken+float64(s.weight*s.taken)
			}
		}
		if weight == 0 {
			continue
		}
		missed := own.taken - service/weight - taken/weight
		for _, s := range l.all {
			if missed > 0 && s.api == a.api && s.due != 0 && s.isApart(own) {
				s.taken += missed
			}
		}
	}
}

// wait notes when the asking replica was told to ask again, what is kept for it meanwhile, and of which limit.
func (l *lines) wait(until Micros, k kept, limit string, within scope) {
	l.due, l.kept, l.limit, l.later, l.within = until, k, limit, false, within
}

// waitForPeriod notes that the asking replica waits for a quota's next period. If it also waits for something else,
// waitForPeriod changes nothing.
func (l *lines) waitForPeriod(begins Micros, within scope) {
	if l.due == 0 {
		l.due, l.later, l.within = begins, true, within
	}
}

// end ends a round of asks: it notes for what the replica waits. It forgets all replicas if none waits.
func (l *lines) end(now Micros, asks int) {
	own := l.own
	own.due, own.kept, own.limit, own.later, own.within = l.due, l.kept, l.limit, l.later, l.within
	if (own.due == 0 || own.later) && own.keys > int64(asks) && !l.held {
		own.due, own.later, own.within = now, false, theAccount // it could not ask for all its keys in one round
	}
	l.own = nil
	if !slices.ContainsFunc(l.all, func(s *standing) bool { return s.due != 0 }) {
		*l = lines{}
	}
}

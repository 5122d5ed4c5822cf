package bucket

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// Limits of an account.
//
// Several apis may have one account at their vendor, and share its limits. Each api has a store of its own, with its
// keys and its own limits. The account's limits are counted once, in a pool. The pool is a Memory without keys: it
// makes snapshots, restores them, and is corrected by the ledger like any other Memory.
//
// A member is the Memory of one api. It decides over its own limits and the limits of its pool in one step, under the
// locks of both. So all limits of a call are reserved and settled together, or none. The serials of all members come
// from the pool: a limit's grants are in order, whichever apis they belong to. The pool also has the members' lines
// (line.go): the apis of an account take turns as replicas do.
//
// A change of the configuration reaches the members one after the other. In two cases a member is granted nothing
// meanwhile. Either its rules do not say what a call takes from some limit of the pool. Or the pool awaits an api that
// may still be called without the account's limits.

// Membership is an api's place in an account.
type Membership struct {
	Account string
	API     string
	APIs    []string // all apis of the account, sorted
	Weight  int64    // the weight of the api's turns; 0 stands for 1
	// Headroom, Jitter and Lease replace those of Rules for the account's limits.
	Headroom      int64
	Jitter, Lease time.Duration
}

// validate returns an error if a membership is out of bounds.
func (m *Membership) validate() error {
	switch {
	case m.Headroom < 0 || m.Headroom > 99:
		return fmt.Errorf("account %s: headroom %d%% is not within 0%% to 99%%", m.Account, m.Headroom)
	case m.Jitter < 0 || m.Jitter > maxJitter:
		return fmt.Errorf("account %s: jitter %s is not within 0s to %s", m.Account, m.Jitter, maxJitter)
	case m.Weight < 0 || m.Weight > MostWeight:
		return fmt.Errorf("account %s: weight %d is not within 0 to %d", m.Account, m.Weight, MostWeight)
	}
	return nil
}

// By returns the rules by which a limit counts. Limits of an account have the headroom, jitter and lease of Membership.
func (r Rules) By(l *Limit) Rules {
	if l.Account != "" && r.In != nil {
		r.Headroom, r.Jitter, r.Lease = r.In.Headroom, r.In.Jitter, r.In.Lease
	}
	return r
}

// Own returns the rules without the limits of the account.
func (r Rules) Own() Rules {
	r.Shared = slices.DeleteFunc(slices.Clone(r.Shared), func(l Limit) bool { return l.Account != "" })
	return r
}

// Alone returns the rules of the api as if no other api of its account were called. All limits then have the larger
// headroom of api and account.
func (r Rules) Alone() Rules {
	if r.In == nil {
		return r
	}
	r.Headroom, r.Shared = max(r.Headroom, r.In.Headroom), slices.Clone(r.Shared)
	for i := range r.Shared {
		r.Shared[i].Account = ""
	}
	r.In = nil
	return r
}

// Pool returns the rules of the pool of an api's account.
func (r Rules) Pool() Rules {
	in := *r.In
	in.API, in.Weight = "", 0
	return Rules{
		Key:    KeyLimits{Rate: Rate{Count: 1, Per: time.Second, Burst: 1}}, // it has no keys
		Shared: slices.DeleteFunc(slices.Clone(r.Shared), func(l Limit) bool { return l.Account == "" }),
		In:     &in, Headroom: in.Headroom, Jitter: in.Jitter, Lease: in.Lease,
	}
}

// APIs returns the apis whose calls the account's limits count. Without an account it returns only the named api.
func (r *Rules) APIs(api string) []string {
	if r.In == nil {
		return []string{api}
	}
	return r.In.APIs
}

// account returns the name of the api's account, or "" if it has none.
func (r *Rules) account() string {
	if r.In == nil {
		return ""
	}
	return r.In.Account
}

// Pools holds the pools of a process by the names of their accounts. It is safe for concurrent use. The zero value is
// empty.
type Pools struct {
	mu  sync.Mutex // guards all
	all map[string]*Memory
}

// Add adds the pool of an account.
func (p *Pools) Add(account string, pool *Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*Memory{}
	}
	p.all[account] = pool
}

// Of returns the pool of an account, nil if there is none.
func (p *Pools) Of(account string) *Memory {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[account]
}

// NewMember is NewMemory for an api that may have an account. pools must hold the pool of every account that the api's
// rules will name. If pools is nil, the store counts the limits of an account itself.
func NewMember(rules Rules, pools *Pools, now func() Micros) (*Memory, error) {
	m := &Memory{now: now, pools: pools}
	if err := m.Apply(rules); err != nil {
		return nil, err
	}
	return m, nil
}

// past says that the member's grants with serials less than below were counted in pool, which the member has left. pool
// is nil if the member had no pool at that time.
type past struct {
	below int64
	pool  *Memory
}

// maxPasts bounds the pools that a member remembers. Grants before these are settled only in the member's own limits.
const maxPasts = 8

// enter locks the member and its pool. The caller must call the function that it returns.
func (m *Memory) enter() (leave func()) {
	m.mu.Lock()
	if m.pool == nil {
		return m.mu.Unlock
	}
	m.pool.mu.Lock()
	return func() {
		m.pool.mu.Unlock()
		m.mu.Unlock()
	}
}

// join puts rules in force that may name another account, or change the limits of the same account. The caller holds
// the member's lock.
func (m *Memory) join(rules Rules) error {
	var pool *Memory
	if account := rules.account(); account != "" && m.pools != nil {
		if pool = m.pools.Of(account); pool == nil {
			return fmt.Errorf("account %s is not open", account)
		}
	}
	if err := rules.Validate(); err != nil {
		return err
	}
	e, now := &m.engine, m.now()
	moved := pool != m.pool && e.asked > 0 // the api may have been called without the pool
	if moved {
		m.leavePool(now)
	}
	if pool != nil {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		p := &pool.engine
		p.arrived = max(p.arrived, e.arrived)
		next := rules.Pool()
		if rules.Version < p.version {
			next = p.rules // a change that comes late undoes no newer one
		}
		p.version = max(p.version, rules.Version)
		if moved || !reflect.DeepEqual(next, p.rules) {
			p.stranger = moved
			if err := p.apply(now, next); err != nil {
				return err
			}
		}
		now = p.tick(e.tick(now))
	}
	if in := rules.In; in != nil {
		e.name = in.API
	}
	if pool != m.pool && pool != nil {
		pool.engine.permits.join(e.name, &e.permits, now, func(serial int64) bool {
			of, past := m.past(serial)
			return past && of == pool
		})
		pool.engine.enrol(e.name)
	}
	m.pool, e.pool = pool, nil
	if pool != nil {
		e.pool = &pool.engine
	}
	return e.apply(now, rules)
}

// leavePool remembers that the grants so far were counted in the present pool, or in none.
func (m *Memory) leavePool(now Micros) {
	if m.pool != nil {
		m.pool.mu.Lock()
		m.pool.engine.strike(m.engine.name, now)
		m.engine.departures.add(m.pool.engine.claims)
		m.pool.mu.Unlock()
	}
	if len(m.pasts) == maxPasts {
		m.pasts = append(m.pasts[:0], m.pasts[1:]...)
		m.pasts[0].pool = nil
	}
	m.pasts = append(m.pasts, past{(m.engine.asked + 1) * MaxWant, m.pool})
}

// past returns the pool that counted a grant, nil if none did. ok is false if the grant belongs to the present pool.
func (m *Memory) past(serial int64) (pool *Memory, ok bool) {
	for _, p := range m.pasts {
		if serial < p.below && serial > 0 {
			return p.pool, true
		}
	}
	return nil, false
}

// settlePast ends a grant in the former pool that counted it, and after that ends its permit in the present pool. So it
// never holds the locks of two pools.
func (m *Memory) settlePast(u *Use) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pool, _ := m.past(u.Grant.Serial)
	m.within(pool, func(e *engine) { e.settle(m.now(), u) })
	m.within(m.pool, func(e *engine) {
		if e.pool != nil && pool != m.pool {
			e.pool.permits.drop(e.name, u.Grant.Serial)
		}
	})
}

// within calls do while the member's engine counts with a pool, and then restores the engine's present pool. The caller
// holds the member's lock.
func (m *Memory) within(pool *Memory, do func(*engine)) {
	e := &m.engine
	present := e.pool
	if e.pool, e.seen = nil, unlinked; pool != nil {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		e.pool = &pool.engine
	}
	do(e)
	e.pool, e.seen = present, unlinked
}

// endPast ends an operation, or a call, in the pools that the member has left.
func (m *Memory) endPast(serial int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pasts {
		if p.pool != nil && p.pool != m.pool {
			m.within(p.pool, func(e *engine) { e.pool.permits.drop(e.name, serial) })
		}
	}
}

// placed is a limit that a call needs, its index in the costs of an ask, and the engine that counts it.
type placed struct {
	*sharedLimit
	at int
	of *engine
}

// unlinked is the engine.seen of an engine whose limits must be found anew.
const unlinked = -1

// counted returns the limits of rules that this engine counts itself: all without a pool.
func (e *engine) counted(rules Rules) []Limit {
	if e.pool == nil {
		return rules.Shared
	}
	return rules.Own().Shared
}

// follow moves the clocks on, and links the limits again if the pool's rules have changed. It returns the later of the
// two clocks' times.
func (e *engine) follow(now Micros) Micros {
	now = e.tick(now)
	changes := int64(0)
	if e.pool != nil {
		now, changes = e.pool.tick(now), e.pool.applied
		e.clock = now
	}
	if e.seen != changes {
		e.seen = changes
		e.link()
	}
	return now
}

// link finds all limits of a call.
func (e *engine) link() {
	e.limits, e.behind = make([]placed, 0, len(e.rules.Shared)), false
	for of := range e.both {
		for i := range of.shared {
			l := &of.shared[i]
			at := slices.IndexFunc(e.rules.Shared, func(own Limit) bool {
				return own.Name == l.Name && own.Kind() == l.Kind() && reflect.DeepEqual(own.Cost, l.Cost)
			})
			e.behind = e.behind || at < 0
			e.limits = append(e.limits, placed{l, at, of})
		}
	}
}

// both yields the engine, and its pool if it has one.
func (e *engine) both(yield func(*engine) bool) {
	if yield(e) && e.pool != nil {
		yield(e.pool)
	}
}

// holderIn returns the name under which an engine holds the operations of this api: "" in the api's own engine.
func (e *engine) holderIn(of *engine) string {
	if of == e {
		return ""
	}
	return e.name
}

// standing returns the lines in which this engine's replicas wait: the pool's lines if the engine has a pool, else its
// own.
func (e *engine) standing() *lines {
	if e.pool != nil {
		return &e.pool.lines
	}
	return &e.lines
}

// count numbers one more ask.
func (e *engine) count() {
	if e.pool != nil {
		e.asked = max(e.asked, e.pool.asked)
		e.pool.asked = e.asked + 1
	}
	e.asked++
}

// expire ends the leases that have run out.
func (e *engine) expire(now Micros) {
	e.permits.expire(now)
	if e.pool != nil {
		e.pool.permits.expire(now)
	}
}

// arrives notes that a call with the slot at may arrive as late as the jitter allows.
func (e *engine) arrives(at Micros) {
	e.arrived = max(e.arrived, at+Micros(ceilMicros(e.rules.Jitter)))
	if e.pool != nil {
		e.pool.arrived = max(e.pool.arrived, at+Micros(ceilMicros(e.pool.rules.Jitter)))
	}
}

// enrol notes that an api counts in this pool from now on.
func (e *engine) enrol(api string) {
	if e.members == nil {
		e.members, e.left = map[string]bool{}, map[string]Micros{}
	}
	e.members[api] = true
	delete(e.left, api)
	e.muster()
}

// strike notes that an api has left this pool. The pool's next snapshot does not name it.
func (e *engine) strike(api string, now Micros) {
	delete(e.members, api)
	e.left[api] = now
	if e.claims != nil {
		e.claims.dropped++
	}
	e.muster()
}

// departures holds, for each pool that an engine has left, the removal that a stored snapshot of the pool must include.
// The store of the engine locks it.
type departures map[*claims]int64

// add notes that the engine has left the pool with these claims.
func (d *departures) add(from *claims) {
	if from == nil {
		return
	}
	if *d == nil {
		*d = departures{}
	}
	(*d)[from] = from.dropped
}

// open reports whether the stored snapshot of a pool that the engine has left may still name its api. If the process
// died now and the api came back, the pool would not know that the api was called elsewhere.
func (d departures) open() bool {
	if len(d) == 0 {
		return false
	}
	maps.DeleteFunc(d, func(from *claims, dropped int64) bool { return from.stored.Load() >= dropped })
	return len(d) > 0
}

// muster sets awaits: whether an api of the account does not count in the pool yet. An api that has left is not
// awaited: it is counted elsewhere already, although these rules may still name it.
func (e *engine) muster() {
	e.awaits = e.isPool() && slices.ContainsFunc(e.rules.In.APIs, func(api string) bool {
		_, left := e.left[api]
		return !e.members[api] && !left
	})
}

// Awaits reports whether the store is a pool, and an api of its account does not count in it yet.
func (m *Memory) Awaits() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.awaits
}

// Callers returns the apis whose calls the pool may have counted within the last d: its members, and apis that left it
// within d. It forgets apis that left earlier, unless the rules still name them.
func (m *Memory) Callers(d time.Duration) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.engine
	now, apis := e.tick(m.now()), e.enrolled()
	for api, at := range e.left {
		switch {
		case now < at.Add(d):
			apis = append(apis, api)
		case !slices.Contains(e.rules.APIs(""), api): // rules that still name it must not await it
			delete(e.left, api)
		}
	}
	return apis
}

// enrolled returns the apis that count in this pool.
func (e *engine) enrolled() []string { return slices.Sorted(maps.Keys(e.members)) }

// isPool reports whether the engine counts an account's limits for others.
func (e *engine) isPool() bool { return e.rules.In != nil && e.rules.In.API == "" }

// joinAhead is how far ahead the slots may lie that an api was given before it joined an account.
const joinAhead = Micros(time.Second / time.Microsecond)

// grown reports whether the next rules bring an api to the pool. The pool does not know the earlier calls of that api.
func (e *engine) grown(next *Rules) bool {
	return e.isPool() && next.In != nil && (e.stranger || joined(e.rules.In.APIs, next.In.APIs))
}

// joined reports whether now has an api that before has not.
func joined(before, now []string) bool {
	return slices.ContainsFunc(now, func(api string) bool { return !slices.Contains(before, api) })
}

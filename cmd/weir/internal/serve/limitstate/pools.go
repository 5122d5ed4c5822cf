package limitstate

import (
	"slices"
	"sync"

	"weir/bucket"
)

// Pools holds the limits of accounts if this process counts them, and the limits of all apis if Redis counts them. It
// is safe for concurrent use. The zero value is empty and usable.
type Pools struct {
	pools bucket.Pools

	mu     sync.Mutex        // guards now and shared
	now    map[string]func() // by account: requests a checkpoint of the account's limits at once
	shared []*sharedLimits   // one for each api that was ever configured
}

// add adds the opened limits of an account.
func (p *Pools) add(account string, store *bucket.Memory, now func()) {
	p.mu.Lock()
	if p.now == nil {
		p.now = map[string]func(){}
	}
	p.now[account] = now
	p.mu.Unlock()
	p.pools.Add(account, store)
}

// join adds the limits of an api, which Redis counts.
func (p *Pools) join(s *sharedLimits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = append(p.shared, s)
}

// drop removes the limits of an api that never ran.
func (p *Pools) drop(s *sharedLimits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = slices.DeleteFunc(p.shared, func(other *sharedLimits) bool { return other == s })
}

// Confirm records that a version of the configuration has these rules for the named apis, even if that version did not
// change them.
func (p *Pools) Confirm(version int64, named func(api string) bool) {
	for _, s := range p.members(nil) {
		if s == nil || !named(s.api) {
			continue
		}
		s.mu.Lock()
		s.rules.Version = max(s.rules.Version, version)
		if store := s.store.Load(); store != nil {
			store.Confirm(version)
		}
		s.mu.Unlock()
	}
}

// AccountInRedis returns the account that counts an api in Redis by the rules last applied; "" if there is none.
func (p *Pools) AccountInRedis(api string) string {
	for _, s := range p.members(nil) {
		if s != nil && s.api == api {
			return accountOf(s.rulesNow())
		}
	}
	return ""
}

// members returns the limits of every api that Redis counts, and thus of every api that may share own's account. If p
// is nil, it returns own alone.
func (p *Pools) members(own *sharedLimits) (of []*sharedLimits) {
	if p == nil {
		return []*sharedLimits{own}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.shared)
}

// of returns the pools that a unit's store may use, nil if the unit is an account.
func (p *Pools) of(u unit) *bucket.Pools {
	if u.pool {
		return nil
	}
	return &p.pools
}

// checkpoint requests a checkpoint of the account that rules name. It does nothing if rules name none.
func (p *Pools) checkpoint(rules bucket.Rules) {
	if rules.In == nil {
		return
	}
	p.mu.Lock()
	now := p.now[rules.In.Account]
	p.mu.Unlock()
	if now != nil {
		now()
	}
}

// Has reports whether the limits of an account are open.
func (p *Pools) Has(account string) bool { return p.pools.Of(account) != nil }

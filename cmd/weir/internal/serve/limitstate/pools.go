package limitstate

import (
	"sync"

	"weir/bucket"
)

// Pools are the limits of accounts that this process counts. It is safe for concurrent use. The zero value has none.
type Pools struct {
	pools bucket.Pools

	mu  sync.Mutex        // guards now
	now map[string]func() // asks for a checkpoint of an account's limits at once
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

// of returns the pools that a unit's store may use: none for an account.
func (p *Pools) of(u unit) *bucket.Pools {
	if p == nil || u.pool {
		return nil
	}
	return &p.pools
}

// checkpoint asks for a checkpoint of the limits of the account that rules name.
func (p *Pools) checkpoint(rules bucket.Rules) {
	if p == nil || rules.In == nil {
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

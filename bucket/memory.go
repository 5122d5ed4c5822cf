package bucket

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Memory is the Store inside one process: exact as long as only this process calls the api.
//
// One mutex guards it; a reservation holds it for well under a microsecond per limit. Every method reads the clock
// once. If the clock steps back, the store's time stops until the clock has caught up: that loses time, and never
// grants too much.
type Memory struct {
	now func() Micros

	mu     sync.Mutex // guards what follows
	engine engine
	pools  *Pools
	pool   *Memory // the pool of the api's account; nil if the store counts all limits itself
	pasts  []past  // oldest first
}

var _ Store = (*Memory)(nil)

// NewMemory returns a store for one api that knows no key yet: every key may be called at once. now is the clock.
func NewMemory(rules Rules, now func() Micros) (*Memory, error) {
	return NewMember(rules, nil, now)
}

// Apply puts new rules in force. A limit that keeps its name and kind keeps its count, and slots already granted stay
// granted. A rate's debt is carried over in units: a raised rate helps at once, a lowered one binds at once. A rate
// that is new, or has another window or burst, counts what may have been called before it (carry.go). An error changes
// nothing.
func (m *Memory) Apply(rules Rules) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.join(rules); err != nil {
		return fmt.Errorf("limits: %w", err)
	}
	return nil
}

// Ahead sets by how much calendars are ahead of the store's clock, or behind it if by is negative. An operator may set
// the wall clock, but not the store's. A period that comes again continues its count: see turnback.go. A Snapshot uses
// the calendars' clock, because a later process starts with that clock.
func (m *Memory) Ahead(by Micros) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.engine.setAhead(m.now(), by)
}

// Reserve implements Store. It fails only if an ask is malformed, and then grants none.
func (m *Memory) Reserve(_ context.Context, asks []Ask) ([]Answer, error) {
	defer m.enter()()
	for i := range asks {
		if err := m.engine.check(&asks[i]); err != nil {
			return nil, fmt.Errorf("ask %d, key %q: %w", i, asks[i].Key, err)
		}
	}
	now := m.now()
	return m.engine.reserveAll(now, asks), nil
}

// Settle implements Store. It never fails.
func (m *Memory) Settle(_ context.Context, uses []Use) error {
	leave := m.enter()
	now, late := m.now(), []*Use(nil)
	for i := range uses {
		u := &uses[i]
		_, past := m.past(u.Grant.Serial)
		if past || len(m.pasts) > 0 && u.Grant.Serial < 0 && u.Hold == 0 {
			late = append(late, u)
		}
		if !past {
			m.engine.settle(now, u)
		}
	}
	leave()
	for _, u := range late {
		if u.Grant.Serial > 0 {
			m.settlePast(u)
		}
		m.endPast(u.Grant.Serial)
	}
	return nil
}

// TAT returns the theoretical arrival time of a key's own bucket, rounded up to a microsecond, or false if the key is
// idle.
func (m *Memory) TAT(key string) (Micros, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.engine.keys.find(key)
	if !ok || s.idle(m.engine.tick(m.now())) {
		return 0, false
	}
	return s.end(), true
}

// Keys returns how many keys the store holds, including idle ones that it has not yet forgotten.
func (m *Memory) Keys() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return int(m.engine.keys.n)
}

// ShadowHolds returns for every shadow limit how many calls it would have held so far.
func (m *Memory) ShadowHolds() map[string]int64 {
	defer m.enter()()
	m.engine.follow(m.now())
	holds := map[string]int64{}
	for i := range m.engine.limits {
		if l := &m.engine.limits[i]; l.Shadow {
			holds[l.Name] = l.holds
		}
	}
	return holds
}

// OwnRate is the Limit that a Wait names for the key's own rate.
const OwnRate = "rate"

// permitPoll is how soon to ask again when all in-flight permits are taken. The store cannot know when one becomes
// free: another owner's call may free it.
const permitPoll = Micros(5 * time.Millisecond / time.Microsecond)

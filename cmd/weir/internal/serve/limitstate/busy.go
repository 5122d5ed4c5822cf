package limitstate

import (
	"context"
	"fmt"
	"strings"

	"weir/cmd/weir/internal/serve/clock"
)

// Busy returns why calls of this site may exceed its share of an account in a window that still sees calls. It returns
// "" if that is impossible as far as counts know: for rates, the time since their change decides. An error counts as a
// reason.
func (p *Pools) Busy(ctx context.Context, account string, clock *clock.Clock) string {
	if pool := p.pools.Of(account); pool != nil {
		rules := pool.Rules()
		return inUse(rules.Over(pool.Levels(), pool.Running(), clock.Now()+clock.Ahead()))
	}
	for _, s := range p.members(nil) {
		if s == nil || accountOf(s.rulesNow()) != account {
			continue
		}
		store := s.store.Load()
		if store == nil {
			return "the limits in Redis are not open yet"
		}
		levels, err := store.Levels(ctx)
		if err != nil {
			return err.Error()
		}
		running, now, err := store.Running(ctx)
		if err != nil {
			return err.Error()
		}
		rules := s.rulesNow()
		return inUse(rules.Over(levels, running, now))
	}
	return ""
}

// inUse says which limits have more in use than the site's share of them.
func inUse(limits []string) string {
	if len(limits) == 0 {
		return ""
	}
	return fmt.Sprintf("more than the share is in use of %s", strings.Join(limits, ", "))
}

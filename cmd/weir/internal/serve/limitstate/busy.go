package limitstate

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"weir/bucket"
	"weir/cmd/weir/internal/serve/clock"
)

// ShareUse is what a process knows of its use of an account with shares.
type ShareUse struct {
	Counts bool   // the process counts calls of the account
	Share  int64  // the share by which it counts, in percent; 100 without shares
	Busy   string // why calls of this site may exceed the share in a window that still sees calls; "" if they cannot
}

// ShareUse returns what this process knows of its use of an account. named reports whether the configuration in force
// names an api. Busy is about what is counted now. Calls by the former rates may count longer: the caller must wait for
// them after a change of the share. An error is a reason in Busy. The share is that of the rules in force, which may be
// the rules of an api that is no longer configured.
func (p *Pools) ShareUse(ctx context.Context, account string, named func(api string) bool, clock *clock.Clock) ShareUse {
	if pool := p.pools.Of(account); pool != nil {
		rules := pool.Rules()
		return ShareUse{true, shareOf(rules, account), inUse(rules.Over(pool.Levels(), pool.Running(), clock.Now()+clock.Ahead()))}
	}
	of := p.memberOf(account, named)
	if of == nil {
		return ShareUse{}
	}
	rules := of.rulesNow()
	return ShareUse{true, shareOf(rules, account), of.busy(ctx, rules)}
}

// memberOf returns the limits of an api of the account, if Redis counts them; otherwise nil. It prefers an api that the
// configuration names, because Redis refuses the calls of the others once that api has followed.
func (p *Pools) memberOf(account string, named func(api string) bool) (of *sharedLimits) {
	for _, s := range p.members(nil) {
		if s == nil || accountOf(s.rulesNow()) != account {
			continue
		}
		if named(s.api) {
			return s
		}
		of = s
	}
	return of
}

// shareOf returns the share by which rules count an account, in percent.
func shareOf(rules bucket.Rules, account string) int64 {
	share := int64(0)
	for i := range rules.Shared {
		if l := &rules.Shared[i]; l.Account == account {
			share = max(share, cmp.Or(l.Share, bucket.WholeShare))
		}
	}
	return cmp.Or(share, bucket.WholeShare)
}

// busy returns Busy of ShareUse for limits that Redis counts.
func (s *sharedLimits) busy(ctx context.Context, rules bucket.Rules) string {
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
	return inUse(rules.Over(levels, running, now))
}

// inUse says which limits have more in use than the site's share of them.
func inUse(limits []string) string {
	if len(limits) == 0 {
		return ""
	}
	return fmt.Sprintf("more than the share is in use of %s", strings.Join(limits, ", "))
}

package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
)

// Unknown returns the names of the quotas and budgets whose use was lost and has not been seeded since. They count as
// full.
func (s *Store) Unknown(ctx context.Context) ([]string, error) {
	lost, missed, err := s.unseeded(ctx)
	return append(lost, missed...), err
}

// Missed returns the limits of Unknown whose count was not lost but may lack calls, because the rules of some ask did
// not have the limit.
func (s *Store) Missed(ctx context.Context) ([]string, error) {
	_, missed, err := s.unseeded(ctx)
	return missed, err
}

func (s *Store) unseeded(ctx context.Context) (lost, missed []string, err error) {
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	var names, marks []string
	for _, l := range s.rules.Shared {
		if l.Quota != nil || l.Budget != nil {
			names, marks = append(names, l.Name), append(marks, s.fieldOf(&l)+":x")
		}
	}
	if len(names) == 0 {
		return nil, nil, nil
	}
	values, err := s.client.HMGet(ctx, s.prefix+"state", marks...).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("ask redis what was lost: %w", err)
	}
	for i, v := range values {
		switch v {
		case "1":
			lost = append(lost, names[i])
		case "2":
			missed = append(missed, names[i])
		}
	}
	return lost, missed, nil
}

// Seed sets the use of lost quotas and budgets. used has the units that the caller has added up from the ledger: for a
// calendar or fixed limit over the present period, for a sliding limit over one period up to now. Calls with an unknown
// outcome must count too. If several replicas seed a limit, the first Seed counts. Seed skips a limit that was not
// lost, so a late or repeated Seed does no harm. If the limit's period begins only within the Horizon, the limit stays
// unknown: seed it when the period has begun.
func (s *Store) Seed(ctx context.Context, used map[string]int64) error {
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	for name, n := range used {
		if n < 0 {
			return fmt.Errorf("seed %s: %d units used", name, n)
		}
	}
	left := maps.Clone(used)
	_, err := s.run(ctx, func() *request {
		r := s.beginLocked("seed", 0)
		for _, l := range s.rules.Shared {
			n, ok := used[l.Name]
			if !ok || l.Quota == nil && l.Budget == nil {
				r.num(-1)
				continue
			}
			r.num(n)
			delete(left, l.Name)
		}
		return r
	})
	if err != nil {
		return fmt.Errorf("seed redis: %w", err)
	}
	if len(left) > 0 {
		return fmt.Errorf("seed redis: no quota or budget is named %v", slices.Sorted(maps.Keys(left)))
	}
	return nil
}

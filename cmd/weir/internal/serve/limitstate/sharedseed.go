package limitstate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/dispatcher/ledger"
)

// This file adds up from the ledger what a lost state of Redis had counted.

const (
	seedRetry  = time.Second
	seedPoll   = 20 * time.Millisecond
	seedWithin = 5 * time.Minute  // the longest that adding up the ledger may take
	recordWait = 25 * time.Second // the longest until a call that has ended on another replica is recorded
)

// unknown returns why a lost use is not added up yet, "" if there is no reason.
func (s *sharedLimits) unknown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

// seed adds up from the ledger what quotas and budgets had counted before Redis lost it. It tries every second until it
// succeeds, ctx ends, or the api moves to another state.
func (s *sharedLimits) seed(ctx context.Context) {
	store, err := s.opened()
	if err != nil {
		return
	}
	told := ""
	for ctx.Err() == nil && s.store.Load() == store {
		epoch := store.Epoch()
		_, err := store.Touch(ctx) // also puts new rules in force in Redis
		var unknown []string
		if err == nil {
			unknown, err = store.Unknown(ctx)
		}
		if err == nil && len(unknown) == 0 {
			s.mu.Lock()
			s.doubt, s.why = s.kept.Epoch != epoch, ""
			s.mu.Unlock()
			return
		}
		if err == nil {
			err = s.seedThese(ctx, store, unknown)
		}
		if err != nil && ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			s.mu.Lock()
			s.why = told
			s.mu.Unlock()
			s.log.Warn("quotas count as used until the ledger is added up; trying again", "limits", strings.Join(unknown, ", "), "err", err)
		}
		select {
		case <-time.After(seedRetry):
		case <-ctx.Done():
		}
	}
}

func (s *sharedLimits) seedThese(ctx context.Context, store *redisstore.Store, unknown []string) error {
	rules := s.rulesNow()
	if err := s.awaitOthers(ctx, store, rules); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, seedWithin)
	defer cancel()
	var limits []bucket.Limit
	for _, l := range rules.Shared {
		if slices.Contains(unknown, l.Name) {
			limits = append(limits, l)
		}
	}
	if err := s.awaitQuiet(ctx, store, limits); err != nil {
		return err
	}
	now, err := store.Touch(ctx)
	if err != nil {
		return err
	}
	// Periods follow Redis's clock. Times in the ledger follow the clock of this process.
	ahead := now.Until(bucket.MicrosOf(time.Now()))
	since := map[string]time.Time{}
	for i := range limits {
		since[limits[i].Name] = periodStart(rules, &limits[i], now).Time().Add(ahead)
	}
	used, err := s.addUp(ctx, store, limits, since)
	if err != nil {
		return err
	}
	if err := store.Seed(ctx, used); err != nil {
		return err
	}
	s.log.Info("use of quotas was added up from the ledger", "limits", strings.Join(unknown, ", "))
	return nil
}

func (s *sharedLimits) rulesNow() bucket.Rules {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules
}

// addUp returns the use of limits by the ledger. It fails if the ledger does not reach back to the beginning of a
// limit's period. A limit that the rules did not have before is an exception: it counts the calls that the ledger has.
func (s *sharedLimits) addUp(ctx context.Context, store *redisstore.Store, limits []bucket.Limit, since map[string]time.Time) (map[string]int64, error) {
	missed, err := store.Missed(ctx)
	if err != nil {
		return nil, err
	}
	extent, err := ledger.ExtentOf(ctx, s.js)
	if err != nil {
		return nil, err
	}
	reached := maps.Clone(since)
	for _, name := range missed {
		if at, asked := since[name]; asked && extent.Begins.After(at) {
			reached[name] = extent.Begins.Add(usageMargin)
		}
	}
	used, err := readUsage(ctx, s.js, s.rulesNow(), s.api, limits, reached)
	if err != nil {
		return nil, err
	}
	for _, name := range missed {
		if at, asked := since[name]; asked {
			s.gaps.tell(s.log, name, at, extent.Begins)
		}
	}
	return used, nil
}

// awaitOthers gives other replicas time to end their running calls and to record them in the ledger. It blocks for
// leaseOf(rules) plus recordWait, or until no other replica calls, or until the api no longer uses the store. Meanwhile
// no replica starts a new call.
func (s *sharedLimits) awaitOthers(ctx context.Context, store *redisstore.Store, rules bucket.Rules) error {
	for start := time.Now(); s.store.Load() == store && s.beside() && time.Since(start) < time.Duration(leaseOf(rules))*time.Microsecond+recordWait; {
		select {
		case <-time.After(seedRetry):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// awaitQuiet blocks until the ledger has every call that this process made. No new call starts meanwhile, because a
// limit whose use is unknown counts as used up. If all limits are in shadow, awaitQuiet returns at once, because limits
// in shadow hold no calls.
func (s *sharedLimits) awaitQuiet(ctx context.Context, store *redisstore.Store, limits []bucket.Limit) error {
	if !slices.ContainsFunc(limits, func(l bucket.Limit) bool { return !l.Shadow }) {
		return nil
	}
	account, of := accountOf(s.rulesNow()), []*sharedLimits{s}
	if slices.ContainsFunc(limits, func(l bucket.Limit) bool { return l.Account != "" }) {
		of = s.pools.members(s)
	}
	tick := time.NewTicker(seedPoll)
	defer tick.Stop()
	for {
		if s.store.Load() != store {
			return errMoved
		}
		if !slices.ContainsFunc(of, func(m *sharedLimits) bool { return !m.isQuiet(account) }) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("calls are still running: %w", context.Cause(ctx))
		}
	}
}

// isQuiet reports whether the ledger has every call that the api made while account counted the api. The account ""
// stands for the api's own state.
func (s *sharedLimits) isQuiet(account string) bool {
	s.mu.Lock()
	open, in := len(s.open), accountOf(s.rules) == account
	if !in {
		open = 0
	}
	for i := range s.formers {
		if f := s.formers[i]; f.account == account && time.Now().Before(f.until) {
			open, in = open+len(f.open), true
		}
	}
	s.mu.Unlock()
	return !in || open == 0 && s.quiet()
}

// periodStart returns the beginning of the period or sliding window of a quota or budget at now.
func periodStart(rules bucket.Rules, l *bucket.Limit, now bucket.Micros) bucket.Micros {
	quota := quotaOf(l)
	if quota.Window == bucket.Sliding {
		life, _ := rules.By(l).SlidingBounds(*quota)
		return now - life
	}
	start, _ := quota.Period(now)
	return start
}

// quotaOf returns a limit's quota, or the quota of its budget. It returns nil for other limits.
func quotaOf(l *bucket.Limit) *bucket.Quota {
	if l.Budget != nil {
		return &l.Budget.Quota
	}
	return l.Quota
}

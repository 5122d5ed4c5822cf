package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"weir/bucket"
)

// levelFields is how many fields of the state Levels reads for each limit.
const levelFields = 8

// Levels returns how much of the shared limits is used, over all replicas, as bucket.Memory does.
func (s *Store) Levels(ctx context.Context) ([]bucket.Level, error) {
	now, behind, err := s.touch(ctx) // drops units that no longer count
	if err != nil {
		return nil, err
	}
	s.rulesMu.RLock()
	defer s.rulesMu.RUnlock()
	var fields []string
	for _, l := range s.rules.Shared {
		for _, f := range []string{":u", ":s", ":e", ":sum", ":h", ":x", ":xu", ":xt"} {
			fields = append(fields, s.fieldOf(&l)+f)
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	values, err := s.client.HMGet(ctx, s.prefix+"state", fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("read the limits in redis: %w", err)
	}
	number := func(limit, field int) int64 {
		text, _ := values[levelFields*limit+field].(string)
		n, _ := strconv.ParseInt(text, 10, 64) // 0 if nothing was counted
		return n
	}
	var levels []bucket.Level
	for i, l := range s.rules.Shared {
		quota := l.Quota
		if l.Budget != nil {
			quota = &l.Budget.Quota
		}
		level := bucket.Level{Limit: l, Held: number(i, 4), Unknown: number(i, 5) != 0}
		if until := bucket.Micros(number(i, 7)) - behind; l.ReadsLeft() && now < until {
			level.Excess, level.ExcessUntil = number(i, 6), until
		}
		if quota == nil && !l.Shadow && level.Excess == 0 {
			continue
		}
		switch {
		case quota == nil:
		case quota.Window == bucket.Sliding:
			level.Used, level.Count = number(i, 3), s.rules.Capacity(l)
		default:
			level.Start, level.End = quota.Period(now)
			level.Count = s.rules.Capacity(l)
			// Redis's period lasts longer than the calendar's if the clock of Redis was set back.
			if number(i, 1) <= int64(now) && int64(now) < number(i, 2) {
				level.Used = number(i, 0)
			}
		}
		if level.Count > 0 {
			level.Used = min(level.Used+level.Excess, max(level.Used, level.Count))
		}
		levels = append(levels, level)
	}
	return levels, nil
}

// Running returns how many calls may be under way that count in the limits of the api's account, or in the api's own
// limits if it has no account. It also returns the server's time. While the state in Redis is younger than a lease,
// Running returns unknownCalls: calls that began before the state was made may still run.
func (s *Store) Running(ctx context.Context) (calls int64, now bucket.Micros, err error) {
	now, behind, err := s.touch(ctx) // drops calls whose leases have run out
	if err != nil {
		return 0, 0, err
	}
	s.rulesMu.RLock()
	lease := s.rules.By(&bucket.Limit{Account: s.account}).LeaseMicros()
	s.rulesMu.RUnlock()
	if int64(now+behind-lease) < born(s.Epoch()) {
		return unknownCalls, now, nil
	}
	from := strconv.FormatInt(int64(now+behind), 10)
	calls, err = s.client.ZCount(ctx, s.prefix+"open", "("+from, "+inf").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("read the calls under way in redis: %w", err)
	}
	return calls, now, nil
}

// unknownCalls is a number of calls that no limit allows.
const unknownCalls = 1 << 52

// Ahead returns how far the clock of Redis is ahead of this machine's clock, and by how much that may be wrong: half
// the round trip. It takes this machine's time from elapsed time since the Store was made, so setting the clock does
// not change the result.
func (s *Store) Ahead(ctx context.Context) (ahead, wrong time.Duration, err error) {
	sent := time.Since(s.made)
	theirs, err := s.client.Time(ctx).Result()
	if err != nil {
		return 0, 0, fmt.Errorf("ask redis for the time: %w", err)
	}
	half := (time.Since(s.made) - sent) / 2
	return theirs.Sub(s.made.Add(sent + half)), half, nil
}

package limitstate

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"weir/bucket"
)

// Limits whose counting moves from Redis to the process.
//
// The mark of the state in Redis says whether Redis or the process counted an api's limits last. If Redis counted last,
// the process's checkpoint lacks the calls made since, and they are added up from the ledger. The process then stores a
// later mark, which no state in Redis has. So if Redis counts again later, its old state counts as lost, and is added
// up from the ledger too.

// processEpoch is the suffix of a mark's epoch that says that the process counted last.
const processEpoch = ".process"

// takeOverFromRedis replaces the process's checkpoint by what the ledger says, if Redis counted the unit's limits last.
func takeOverFromRedis(ctx context.Context, o *Options, u *unit) error {
	key := epochKey(u.name)
	kept, err := newestOf(ctx, o.Conn, o.Control, key)
	switch {
	case err != nil:
		return fmt.Errorf("limits of the last run: %w", err)
	case len(kept.Data) == 0:
		return nil
	}
	var mark redisMark
	if err := json.Unmarshal(kept.Data, &mark); err != nil {
		return fmt.Errorf("limits of the last run (%s in %s) cannot be read: %w", key, o.Control.Bucket(), err)
	}
	if strings.HasSuffix(mark.Epoch, processEpoch) {
		return nil
	}
	o.Log.Info("limits are counted in the process again; their use is added up from the ledger", "limits", u.name)
	s, err := snapshotOfLedger(ctx, o, u, o.Clock.Now())
	if err != nil {
		return err
	}
	born, _, _ := strings.Cut(mark.Epoch, ".")
	n, _ := strconv.ParseInt(born, 10, 64) // a mark without a number counts as 0
	for _, put := range []struct {
		key   string
		value any
	}{{checkpointKey(u.name), s}, {key, redisMark{Epoch: strconv.FormatInt(n+1, 10) + processEpoch}}} {
		data, err := json.Marshal(put.value)
		if err != nil {
			panic("a checkpoint that JSON cannot carry: " + err.Error())
		}
		if _, err := o.Control.Put(ctx, put.key, data); err != nil {
			return fmt.Errorf("take over the limits: %w", err)
		}
	}
	return nil
}

// snapshotOfLedger returns what a unit's limits may have counted. It adds up quotas and budgets from the ledger. Every
// rate's burst counts as used, and every permit counts as taken for one lease.
//
// The sums of quotas and budgets may be too small at first. Calls that were under way when the process died have no
// record before recovery. Redis has counted these calls, and the sums lack them. So the limits grant nothing until
// every call has its record.
func snapshotOfLedger(ctx context.Context, o *Options, u *unit, now bucket.Micros) (bucket.Snapshot, error) {
	s := bucket.Snapshot{Until: now}
	if u.pool {
		s.APIs = u.apis
	}
	var counted []bucket.Limit
	since := map[string]time.Time{}
	shared := u.rules.Shared
	if !u.pool {
		shared = u.rules.Own().Shared
	}
	for i := range shared {
		l := &shared[i]
		rules := u.rules.By(l)
		switch l.Kind() {
		case bucket.KindRate:
			t := rules.Interval(*l.Rate)
			tat := now.Add(t.Duration() * time.Duration(l.Rate.Burst))
			s.Limit = append(s.Limit, bucket.LimitSnapshot{Name: l.Name, TAT: tat, P: t.P, Q: t.Q})
		case bucket.KindInFlight:
			s.Open, s.Lease = max(s.Open, l.InFlight), now+rules.LeaseMicros()
		case bucket.KindQuota, bucket.KindBudget:
			counted = append(counted, *l)
			since[l.Name] = periodStart(rules, l, now).Time()
		}
	}
	used, err := readUsage(ctx, o.JetStream, u.rules, u.name, counted, since)
	if err != nil {
		return s, err
	}
	for i := range counted {
		l := &counted[i]
		one := bucket.LimitSnapshot{Name: l.Name, Used: used[l.Name], Partial: true}
		if quota := quotaOf(l); quota.Window == bucket.Sliding {
			one.Used, one.Log = 0, [][2]int64{{int64(now), used[l.Name]}}
		} else {
			one.Start, one.End = quota.Period(now)
		}
		s.Limit = append(s.Limit, one)
	}
	return s, nil
}

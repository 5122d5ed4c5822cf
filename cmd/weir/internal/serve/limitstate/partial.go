package limitstate

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"weir/bucket"
	"weir/dispatcher/ledger"
)

// Limits that come into force within their period.
//
// A quota or budget that is new to the rules, or was removed and added again, has missed calls: it is partial. A
// partial limit grants no call until the calls under way have ended and are recorded. Then the ledger has all calls.
// Their sum is put first into the account, then into the limit, and with the next checkpoint into the state for the
// next start. If the process dies in between, the next start adds up the ledger again.

const (
	partialWait   = 10 * time.Second // after this long awaitQuiet fails, because earlier calls are still running
	partialWithin = 5 * time.Minute  // the longest that adding up the ledger may take
)

// gaps says, by limit, which calls were no longer in the ledger when the limit was added up. It is safe for concurrent
// use.
type gaps struct {
	mu  sync.Mutex
	why map[string]string
}

// lookForPartial makes run continue at once if a limit is partial. It does not block.
func (a *accounts) lookForPartial() {
	if a == nil || len(a.store.Partial()) == 0 {
		return
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// fillIn adds up from the ledger the calls that partial limits have missed, and makes the limits count them.
func (a *accounts) fillIn(ctx context.Context) error {
	partial := a.store.Partial()
	if len(partial) == 0 {
		return nil
	}
	names := strings.Join(slices.Sorted(maps.Keys(partial)), ", ")
	if err := a.awaitQuiet(ctx); err != nil {
		return fmt.Errorf("limits %s: %w", names, err)
	}
	extent, err := ledger.ExtentOf(ctx, a.js)
	if err != nil {
		return err
	}
	if err := a.advanceTo(ctx, extent); err != nil {
		return err
	}
	rules := a.store.Rules()
	sum, err := a.addUp(ctx, rules, partial, extent)
	if err != nil {
		return fmt.Errorf("limits %s: %w", names, err)
	}
	for i := range sum.Limits {
		if of := a.note.Account.Of(sum.Limits[i].Name); of != nil && of.By == sum.Limits[i].By {
			*of = sum.Limits[i]
		}
	}
	if err := a.put(ctx, a.note); err != nil {
		return err
	}
	a.store.FillIn(partial, sum)
	a.log.Info("calls before the limits came into force were added up from the ledger", "limits", names)
	if len(a.store.Partial()) == 0 {
		a.settle()
	}
	a.changed()
	return nil
}

// awaitQuiet blocks until the ledger has every call that was made. It fails after partialWait. No new call starts
// meanwhile.
func (a *accounts) awaitQuiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, partialWait)
	defer cancel()
	tick := time.NewTicker(accountPoll)
	defer tick.Stop()
	for {
		if _, ok := a.recovered(); ok && a.quiet() {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("earlier calls are still running or not yet recorded: %w", context.Cause(ctx))
		}
	}
}

// addUp returns the use of partial limits: that of the ledger's records up to the end of extent, and that of the calls
// that may have been under way at a death and have no record.
func (a *accounts) addUp(ctx context.Context, rules bucket.Rules, partial map[string]int64, extent ledger.Extent) (*bucket.Account, error) {
	now := a.now() + a.ahead()
	late, apis := bucket.Micros(0).Add(rules.Jitter+usageMargin), rules.APIs(a.of.name)
	sum := bucket.NewAccount(rules)
	sum.Limits = slices.DeleteFunc(sum.Limits, func(l bucket.LimitAccount) bool { _, in := partial[l.Name]; return !in })
	var limits []bucket.Limit
	since := map[string]bucket.Micros{}
	first := now
	for _, l := range rules.Shared {
		if sum.Of(l.Name) != nil {
			limits = append(limits, l)
			since[l.Name] = periodStart(rules, &l, now)
			first = min(first, since[l.Name])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, partialWithin)
	defer cancel()
	unreadable, err := ledger.Read(ctx, a.js, ledger.Filter{API: a.of.api(), Since: (first - late).Time().Add(-ledger.ServerSkew)}, func(c *ledger.Record, _, _ uint64) error {
		if c.At > extent.Last {
			return nil
		}
		// While the limit was not in force, no call avoided the edge of its period: the api may have counted the call
		// in the next period.
		at := min(now, ChargedAt(c)+late)
		for i := range limits {
			if units, counts := unitsOf(c, &limits[i], apis); counts {
				sum.Add(rules, limits[i].Name, at, units)
			}
		}
		return nil
	})
	if err == nil && unreadable > 0 {
		err = fmt.Errorf("ledger: %d records of %s cannot be read: the limits stay closed until these records are older than the limits' periods", unreadable, a.of.name)
	}
	if err != nil {
		return nil, err
	}
	unlogged, _ := a.recovered()
	for i := range limits {
		l := &limits[i]
		sum.Add(rules, l.Name, now, a.unloggedUnits(l, int64(unlogged)))
		a.gaps.tell(a.log, l.Name, since[l.Name].Time(), extent.Begins)
	}
	sum.Forget(rules, now)
	return sum, nil
}

// unloggedUnits returns the most units that this number of calls can have taken from a limit.
func (a *accounts) unloggedUnits(l *bucket.Limit, calls int64) int64 {
	switch {
	case calls == 0:
		return 0
	case l.Budget != nil:
		if price, fixed := a.price(); fixed {
			return calls * price
		}
	case l.Cost == nil:
		return calls
	}
	return quotaOf(l).Count
}

// tell records and logs which part of a limit's period the ledger does not cover. The limit counts only the calls that
// the ledger has.
func (g *gaps) tell(log *slog.Logger, limit string, since, begins time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !begins.After(since) {
		delete(g.why, limit)
		return
	}
	if g.why == nil {
		g.why = map[string]string{}
	}
	g.why[limit] = "what was called before " + begins.UTC().Format(time.RFC3339) + " is not counted in this period: the ledger does not reach back"
	log.Warn("a limit that was added within its period counts only the calls in the ledger", "limit", limit, "period", since.UTC(), "ledger", begins.UTC())
}

// of says which calls a limit's count lacks; it returns "" if the count is complete.
func (g *gaps) of(limit string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.why[limit]
}

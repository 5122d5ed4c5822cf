package limitstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket"
	"weir/dispatcher/ledger"
)

// usageMargin is how long before a period's start calls already count. So the sum may include calls of the period
// before, but misses no call at the edge.
const usageMargin = time.Second

// errNotCovered reports that the ledger begins later than the limit's period.
var errNotCovered = errors.New("the ledger does not reach back to the beginning of the period: the limit opens with its next one; " +
	"to call before, apply a configuration in which it has another name: it begins with what the ledger has")

// readUsage adds up from the ledger what calls took from each limit since the limit's time in since. The api's own
// limits count the calls of the api. An account's limits count the calls of all apis of the account that rules name.
// readUsage streams the ledger, so its memory does not grow with the ledger.
func readUsage(
	ctx context.Context, js jetstream.JetStream, rules bucket.Rules, api string, limits []bucket.Limit, since map[string]time.Time,
) (map[string]int64, error) {
	used, filter := map[string]int64{}, ledger.Filter{API: api}
	first := time.Now()
	for i := range limits {
		if used[limits[i].Name] = 0; limits[i].Account != "" {
			filter.API = ""
		}
		if at := since[limits[i].Name]; at.Before(first) {
			first = at
		}
	}
	first = first.Add(-usageMargin)
	covers, err := ledger.Reaches(ctx, js, first)
	if err != nil {
		return nil, err
	}
	if !covers {
		return nil, errNotCovered
	}
	read := func(c *ledger.Record, _, _ uint64) error {
		for i := range limits {
			l, apis := &limits[i], []string{api}
			if l.Account != "" {
				apis = rules.APIs(api)
			}
			if units, counts := unitsOf(c, l, apis); counts && !c.Started.Before(since[l.Name].Add(-usageMargin)) {
				used[l.Name] += units
			}
		}
		return nil
	}
	filter.Since = first
	unreadable, err := ledger.Read(ctx, js, filter, read)
	if err == nil && unreadable > 0 {
		err = fmt.Errorf("ledger: %d records of api %s cannot be read", unreadable, api)
	}
	if err != nil {
		return nil, err
	}
	return used, nil
}

// unitsOf returns the units that a call took from a limit. apis are the apis that the limit counts now. An account's
// limit also counts the calls that other apis made while the account counted them.
func unitsOf(c *ledger.Record, l *bucket.Limit, apis []string) (units int64, counts bool) {
	if slices.Contains(apis, c.API) {
		return c.Units(l), true
	}
	if l.Account == "" {
		return 0, false
	}
	return c.Took(l)
}

package outlook

import (
	"context"
	"fmt"
	"math"
	"time"

	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/whatif"
)

// Overflows are the keys of an api that overflow next, if the recorded jobs come again and grow as they did.
type Overflows struct {
	API     string
	Account string // of the api; "" for none
	// Load is how many times as many jobs as recorded come at the end of the time ahead, by the growth; 1 without one.
	Load float64
	Days int // whole days that the growth was seen on; 0: none
	// Overflowing are the keys, those with most jobs that overflow first, and More is how many were left out.
	Overflowing []whatif.OfKey
	More        int
}

// mostNext bounds the keys that are named for each api.
const mostNext = 5

// Next returns for each api of the configuration the keys that overflow within a time ahead. Apis of one account are
// planned together. An api without jobs overflows nothing. It ignores q.API and q.Account, and reads as Read does for
// each api or account.
func Next(ctx context.Context, c *connect.Connection, q Question, ahead time.Duration) ([]Overflows, error) {
	var all []Overflows
	if err := q.orRunning(ctx, c); err != nil {
		return nil, err
	}
	seen := map[string]bool{} // accounts
	for i := range q.Config.APIs {
		a := &q.Config.APIs[i]
		if q.API, q.Account = a.Name, a.Account; a.Account != "" {
			if q.API = ""; seen[a.Account] {
				continue
			}
			seen[a.Account] = true
		}
		r, err := read(ctx, c, &q)
		if err != nil {
			return nil, err
		}
		of, err := r.next(ctx, ahead)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

func (r *Recorded) next(ctx context.Context, ahead time.Duration) (all []Overflows, err error) {
	g := growthOf(jobsOf(r.whole(r.days())))
	load, days := math.Min(g.in(ahead.Hours()/24), whatif.MostLoad), 0
	if g.grows() {
		days = g.Days
	}
	outcomes, err := whatif.RunAll(ctx, r.parts(), load, func(int) {})
	if err != nil {
		return nil, fmt.Errorf("run the recorded jobs: %w", err)
	}
	for i, o := range outcomes {
		n := Overflows{API: r.Pasts[i].API.Name, Account: r.Account, Load: load, Days: days, Overflowing: o.Overflowing()}
		n.More = max(0, len(n.Overflowing)-mostNext)
		n.Overflowing = n.Overflowing[:len(n.Overflowing)-n.More]
		all = append(all, n)
	}
	return all, nil
}

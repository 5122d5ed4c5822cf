package outlook

import (
	"context"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/whatif"
)

// Overflows are the keys of an api that overflow next, if the recorded jobs come again and grow as they did.
type Overflows struct {
	API     string
	Account string // of the api; "" for none
	// Load is how many times as many jobs as recorded come at the end of the time ahead, by the growth; 1 without one.
	Load  float64
	Tried float64 // the load that was tried: Load, but at most whatif.MostLoad
	Days  int     // whole days that the growth was seen on; 0: none
	// Overflowing are the keys, those with most jobs that overflow first, and More is how many were left out.
	Overflowing []whatif.OfKey
	More        int
	LeftOut     int // jobs of keys beyond the bound, which were not tried

	Gaps
}

// Whole reports whether all jobs that came were tried, with as many as the growth brings. If not, more keys may overflow.
// Jobs of which the ledger lost the records are not held against it.
func (n *Overflows) Whole() bool { return n.ReadUntil.IsZero() && n.LeftOut == 0 && n.Tried >= n.Load }

// Notes returns a sentence for each thing that was not read or not tried. later says how to ask for less.
func (n *Overflows) Notes(later string) (notes []string) {
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	n.notes(say, later)
	if n.LeftOut > 0 {
		say("%s %s", cli.Count(n.LeftOut, "job"), moreKeys)
	}
	if n.Tried < n.Load {
		say("the growth brings %.3g times as many jobs, and %g times as many were tried", n.Load, n.Tried)
	}
	return notes
}

// mostNext bounds the keys that are named for each api.
const mostNext = 5

// Next returns for each api of the configuration the keys that overflow within a time ahead. Apis of one account are
// planned together. An api without jobs overflows nothing. Next ignores q.API and q.Account, and reads as Read does for
// each api or account. If that fails, Next also returns what it found before.
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
			return all, err
		}
		of, err := r.next(ctx, ahead)
		if err != nil {
			return all, err
		}
		all = append(all, of...)
	}
	return all, nil
}

func (r *Recorded) next(ctx context.Context, ahead time.Duration) (all []Overflows, err error) {
	g := r.growth(r.days())
	load, days := g.in(ahead.Hours()/24), 0
	if g.grows() {
		days = g.Days
	}
	tried := min(load, whatif.MostLoad)
	outcomes, err := whatif.RunAll(ctx, r.parts(), tried, func(int) {})
	if err != nil {
		return nil, fmt.Errorf("run the recorded jobs: %w", err)
	}
	for i, o := range outcomes {
		n := Overflows{
			API: r.Pasts[i].API.Name, Account: r.Account, Load: load, Tried: tried, Days: days, Overflowing: o.Overflowing(),
			LeftOut: r.Pasts[i].LeftOut, Gaps: r.Gaps,
		}
		n.More = max(0, len(n.Overflowing)-mostNext)
		n.Overflowing = n.Overflowing[:len(n.Overflowing)-n.More]
		all = append(all, n)
	}
	return all, nil
}

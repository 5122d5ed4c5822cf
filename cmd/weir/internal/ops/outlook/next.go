package outlook

import (
	"context"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/whatif"
)

// Overflows are the keys of an api that overflow next if the recorded jobs come again, as many more as the growth
// brings.
type Overflows struct {
	API     string
	Account string // of the api; "" for none
	// Load is how many times as many jobs as recorded the growth brings by the end of the time ahead; 1 without a growth.
	Load  float64
	Tried float64 // the load that was tried: Load, but at most whatif.MostLoad
	Days  int     // whole days that show the growth; 0: there is no growth
	// Overflowing are these keys, sorted by how many of their jobs overflow, the most first. More is how many keys were
	// left out.
	Overflowing []whatif.OfKey
	More        int
	LeftOut     int // jobs of keys beyond the bound, which were not tried
	Jobs        int // recorded jobs
	Queued      int // set by the caller: jobs that wait for a call. The plan lacks those of them that were never called

	Gaps
}

// mostQueued is the part of the recorded jobs that may wait for a call if Whole is to be true.
const mostQueued = 0.05

// Whole reports whether the plan tried all jobs that came, except a few that wait, at the load that the growth brings.
// If not, more keys may overflow. Records that the ledger has lost do not make Whole false.
func (n *Overflows) Whole() bool {
	return n.ReadUntil.IsZero() && n.LeftOut == 0 && n.Tried >= n.Load && float64(n.Queued) <= mostQueued*float64(n.Jobs)
}

// Notes returns a sentence for each thing that was not read or not tried. later is the advice if a bound ended the
// reading.
func (n *Overflows) Notes(later string) (notes []string) {
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	n.notes(say, later)
	if n.LeftOut > 0 {
		say("%s %s", cli.Count(n.LeftOut, "job"), moreKeys)
	}
	if n.Queued > 0 {
		say("%s %s: %s", cli.Count(n.Queued, "job"), cli.Verb(n.Queued, "waits", "wait"), neverCalled)
	}
	if n.Tried < n.Load {
		say("the growth brings %.3g times as many jobs, and %g times as many were tried", n.Load, n.Tried)
	}
	return notes
}

// mostNext bounds the keys that are named for each api.
const mostNext = 5

// Next returns the keys that overflow within the time ahead, for each api of the configuration. It plans all apis of an
// account together. Without jobs, no key of an api overflows. Next ignores q.API and q.Account. It reads as Read does,
// once for each account and for each api without one. If it fails, it also returns what it found before.
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
			LeftOut: r.Pasts[i].LeftOut,
			Jobs:    r.Pasts[i].trace.Jobs(), Gaps: r.Gaps,
		}
		n.More = max(0, len(n.Overflowing)-mostNext)
		n.Overflowing = n.Overflowing[:len(n.Overflowing)-n.More]
		all = append(all, n)
	}
	return all, nil
}

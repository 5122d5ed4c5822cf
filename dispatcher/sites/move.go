package sites

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"weir/bucket"
)

// Site is one site of an account, as a move sees it. Each method fails if the site does not answer. What a failed
// method has done is then unknown.
type Site interface {
	// Claim notes the move at the site, and then returns what is in force there. From then on Set fails for every
	// earlier claim.
	Claim(ctx context.Context) (Claim, error)
	// Check returns why the site cannot enforce a share, nil if it can. It changes nothing.
	Check(c Claim, percent int64) error
	// Set stores another share at the site. It fails with ErrOvertaken if anything was written there since the claim. It
	// returns the claim for the next Set and for Await.
	Set(ctx context.Context, c Claim, percent int64) (Claim, error)
	// Await blocks until two things hold: every process of the site that may call has the claim's share in force, and in
	// every window that may still see a call of any site, the calls of this site are within that share.
	Await(ctx context.Context, c Claim) error
	// Confirm fails with ErrOvertaken if another move has claimed the site since, or if more than the claim's share is in
	// force there.
	Confirm(ctx context.Context, c Claim) error
}

// Claim is what a mover knows of a site.
type Claim struct {
	Share    int64    // in force, in percent
	Sites    []string // all sites of the account that this site knows, itself included
	Revision uint64   // of the last write at the site
}

// ErrOvertaken says that something was written at a site after the move had claimed it.
var ErrOvertaken = errors.New("another change came first")

// Move is a change of the shares of one account.
type Move struct {
	Sites  map[string]Site  // every site of the account, by name
	Target map[string]int64 // the wanted shares in percent, by site. A site that is missing keeps its share
	Tell   func(Progress)   // optional: called after each step at a site
}

// Progress says that a step of a move is done at a site.
type Progress struct {
	Step     Step
	Site     string
	Old, New int64 // shares in percent; equal for Awaited
}

// Step is what was done at a site.
type Step string

// The steps that Tell hears.
const (
	Lowered Step = "lowered"
	Awaited Step = "awaited" // the site's use is within its share
	Raised  Step = "raised"
)

// Shares returns the sum of shares.
func Shares(of map[string]int64) (sum int64) {
	for _, percent := range of {
		sum += percent
	}
	return sum
}

// run is a move under way.
type run struct {
	*Move

	claims map[string]Claim
	after  map[string]int64 // the shares after the move
}

// step is one step of a move. It visits sites in the order of their names.
type step func(ctx context.Context, r *run) error

// order returns the steps of a move. doc.go and deploy/decisions/067-sites.md say why the order is this one.
func order() []step { return []step{claim, check, lower, await, confirm, raise} }

// Run moves the shares. It returns the shares of the sites as far as it knows them, even if it fails.
func (m *Move) Run(ctx context.Context) (map[string]int64, error) { return m.inOrder(ctx, order()) }

func (m *Move) inOrder(ctx context.Context, steps []step) (map[string]int64, error) {
	r := &run{Move: m, claims: map[string]Claim{}, after: map[string]int64{}}
	for _, do := range steps {
		if err := do(ctx, r); err != nil {
			return r.shares(), err
		}
	}
	return r.shares(), nil
}

// shares returns the share that each claimed site has stored last, as far as the move knows.
func (r *run) shares() map[string]int64 {
	now := map[string]int64{}
	for name, c := range r.claims {
		now[name] = c.Share
	}
	return now
}

// names returns the names of the sites, sorted.
func (r *run) names() []string { return slices.Sorted(maps.Keys(r.Sites)) }

// claim claims every site. The claims of several sites are not one step: another mover may have claimed one site before
// this one, and the next site after it. confirm detects that.
func claim(ctx context.Context, r *run) error {
	for _, name := range r.names() {
		c, err := r.Sites[name].Claim(ctx)
		if err != nil {
			return fmt.Errorf("site %s: %w", name, err)
		}
		r.claims[name] = c
	}
	return nil
}

// check refuses shares that can never be in force, and a move that does not include every site.
func check(_ context.Context, r *run) error {
	for _, name := range r.names() {
		for _, other := range r.claims[name].Sites {
			if _, ok := r.Sites[other]; !ok {
				return fmt.Errorf("site %s knows a site %s of the account, and the move does not reach it", name, other)
			}
		}
		r.after[name] = r.claims[name].Share
		if percent, wanted := r.Target[name]; wanted {
			r.after[name] = percent
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Target)) {
		if _, ok := r.Sites[name]; !ok {
			return fmt.Errorf("the account has no site %s", name)
		}
	}
	if sum := Shares(r.after); sum > bucket.WholeShare {
		return fmt.Errorf("the shares would be %d%% together, and %d%% is the whole", sum, bucket.WholeShare)
	}
	for _, name := range r.names() {
		if err := r.Sites[name].Check(r.claims[name], r.after[name]); err != nil {
			return fmt.Errorf("site %s: %w", name, err)
		}
	}
	return nil
}

// lower lowers the sites that get less.
func lower(ctx context.Context, r *run) error {
	return r.set(ctx, Lowered, func(now, after int64) bool { return after < now })
}

// raise raises the sites that get more.
func raise(ctx context.Context, r *run) error {
	return r.set(ctx, Raised, func(now, after int64) bool { return after > now })
}

// set stores the share after the move at each site for which due returns true.
func (r *run) set(ctx context.Context, as Step, due func(now, after int64) bool) error {
	for _, name := range r.names() {
		c, after := r.claims[name], r.after[name]
		if !due(c.Share, after) {
			continue
		}
		next, err := r.Sites[name].Set(ctx, c, after)
		if err != nil {
			return fmt.Errorf("site %s: %w", name, err)
		}
		r.claims[name] = next
		r.tell(Progress{as, name, c.Share, after})
	}
	return nil
}

// await waits for all sites. A site that this move has not lowered may have been lowered just before, by a mover that
// died.
func await(ctx context.Context, r *run) error {
	for _, name := range r.names() {
		c := r.claims[name]
		if err := r.Sites[name].Await(ctx, c); err != nil {
			return fmt.Errorf("site %s: %w", name, err)
		}
		r.tell(Progress{Awaited, name, c.Share, c.Share})
	}
	return nil
}

// confirm fails if another mover has claimed any site since this move did. Of two movers that overlap, at most one
// raises: if each is the last one to claim the site that it raises, one of them finds the other's claim at the other
// site.
func confirm(ctx context.Context, r *run) error {
	for _, name := range r.names() {
		if err := r.Sites[name].Confirm(ctx, r.claims[name]); err != nil {
			return fmt.Errorf("site %s: %w", name, err)
		}
	}
	return nil
}

func (r *run) tell(p Progress) {
	if r.Tell != nil {
		r.Tell(p)
	}
}

package shares

import (
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/sites"
)

// Move is a move of the shares of one account.
type Move struct {
	Who     string
	Account string
	Target  map[string]int64 // in percent, by site; a site that is missing keeps its share
	Talk    io.Writer        // receives lines about the progress
}

// Moved is the outcome of a move.
type Moved struct {
	Account string           `json:"account"`
	Moved   bool             `json:"moved"`  // every site has its share
	Shares  map[string]int64 `json:"shares"` // in force as far as the command knows, in percent
}

// note returns the claim of the move at a site.
func (m *Move) note() admin.Claim {
	return admin.Claim{Who: m.Who, At: time.Now().UTC(), Account: m.Account, Target: m.Target}
}

// command returns the command that a user would write to make the move.
func (m *Move) command() string {
	of := m.note()
	return of.Command()
}

// Run moves the shares. It blocks until the calls of the sites that get less are within their new shares in every
// window, which may take as long as the longest window of the account's limits.
func (m *Move) Run(ctx context.Context, r *Reach) (*Moved, error) {
	found, err := r.all(ctx, m.Account, m.Target)
	if err != nil {
		return nil, err
	}
	move := sites.Move{Sites: map[string]sites.Site{}, Target: m.Target, Tell: m.tell}
	var all []*site
	for _, name := range slices.Sorted(maps.Keys(found)) {
		s := &site{Move: m, name: name, c: found[name]}
		all = append(all, s)
		move.Sites[name] = s
	}
	changed, warned := false, false
	move.Tell = func(p sites.Progress) {
		changed = changed || p.Step != sites.Awaited
		if p.Step == sites.Awaited && !warned {
			warned = true
			m.warn(all)
		}
		m.tell(p)
	}
	now, err := move.Run(ctx)
	moved := &Moved{Account: m.Account, Moved: err == nil, Shares: now}
	switch {
	case err != nil && changed:
		return moved, fmt.Errorf("%w; the shares that this command knows are %s, together %d%%: `%s` goes on", err, text(now), sites.Shares(now), m.command())
	case err != nil:
		return moved, fmt.Errorf("%w; no share was changed", err)
	}
	return moved, nil
}

// text returns shares in the form of the command's arguments.
func text(shares map[string]int64) string {
	var words []string
	for _, site := range slices.Sorted(maps.Keys(shares)) {
		words = append(words, fmt.Sprintf("%s=%d%%", site, shares[site]))
	}
	return strings.Join(words, " ")
}

func (m *Move) tell(p sites.Progress) {
	switch p.Step {
	case sites.Awaited:
		_, _ = fmt.Fprintf(m.Talk, "weir: site %s is within %d%%\n", p.Site, p.New)
	case sites.Lowered, sites.Raised:
		_, _ = fmt.Fprintf(m.Talk, "weir: site %s %s: %d%% -> %d%%\n", p.Site, p.Step, p.Old, p.New)
	}
}

// warn says which sites have other limits for the account than the first site.
func (m *Move) warn(all []*site) {
	for _, s := range all[1:] {
		if !reflect.DeepEqual(limitsOf(all[0].version, m.Account), limitsOf(s.version, m.Account)) {
			_, _ = fmt.Fprintf(m.Talk, "weir: sites %s and %s have different limits of %s: shares of different limits need not add up to a whole\n",
				all[0].name, s.name, m.Account)
		}
	}
}

// limitsOf returns the undivided limits of an account, and their headroom.
func limitsOf(v *admin.Claimed, account string) any {
	a, ok := v.Config.Account(account)
	if !ok {
		return nil
	}
	return []any{a.Whole, a.Rules.Headroom}
}

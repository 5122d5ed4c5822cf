package shares

import (
	"context"
	"errors"
	"maps"
	"slices"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/admin"
)

// Shown is the share of one site as that site says it, or as another site's file says it.
type Shown struct {
	Account string `json:"account"`
	Site    string `json:"site"`
	InForce int64  `json:"in_force,omitempty"` // in percent; 0: not known
	File    int64  `json:"file,omitempty"`     // by the file of the site, or of the site that was asked
	Version uint64 `json:"version,omitempty"`  // of the configuration at the site
	Error   string `json:"error,omitempty"`    // why the site did not say its share
	// Unfinished is the command that goes on with the move that has claimed the site last, if the site does not have the
	// move's share. The move may still be running.
	Unfinished string `json:"unfinished,omitempty"`
}

// unfinished fills in Unfinished.
func (s *Shown) unfinished(move *admin.Claim) {
	if move != nil && move.Account == s.Account {
		s.Unfinished = move.Command()
	}
}

// Show returns the shares of an account at all sites that can be reached. If account is "", it returns the shares of
// all accounts at the site of the server that commands use by default.
func Show(ctx context.Context, r *Reach, account string) ([]Shown, error) {
	if account == "" {
		return showOwn(ctx, r)
	}
	first, _, err := r.Own(ctx)
	next := r.Sites()
	if err == nil {
		next = append([]string{first}, next...)
	} else if len(next) == 0 {
		return nil, err
	}
	files, done := map[string]int64{}, map[string]Shown{}
	for len(next) > 0 {
		name := next[0]
		next = next[1:]
		if _, ok := done[name]; ok {
			continue
		}
		s, a := showSite(ctx, r, name, account)
		if s == nil {
			continue // it is a site of other accounts
		}
		done[name] = *s
		for _, of := range a {
			files[of.Site] = of.Percent
			next = append(next, of.Site)
		}
	}
	if len(done) == 0 {
		return nil, cli.NotFound(errors.New("no site has an account " + account + " with shares"))
	}
	var all []Shown
	for _, name := range slices.Sorted(maps.Keys(done)) {
		s := done[name]
		if s.File == 0 {
			s.File = files[name]
		}
		all = append(all, s)
	}
	return all, nil
}

// showSite asks one site. It returns the site's share, and the shares in its file. The former is nil if the site does
// not share the account.
func showSite(ctx context.Context, r *Reach, name, account string) (*Shown, []config.Share) {
	s := &Shown{Account: account, Site: name}
	c, err := r.To(ctx, name)
	if err != nil {
		s.Error = err.Error()
		return s, nil
	}
	v, err := admin.CurrentVersion(ctx, c)
	if err != nil {
		s.Error = err.Error()
		return s, nil
	}
	move, err := admin.UnfinishedMove(ctx, c)
	if err != nil {
		s.Error = err.Error()
		return s, nil
	}
	a, ok := v.Config.Account(account)
	if !ok || len(a.Shares) == 0 {
		return nil, nil
	}
	s.InForce, s.Version = a.Share, v.Number
	s.File, _ = a.ByFile(name)
	s.unfinished(move)
	return s, a.Shares
}

// showOwn returns the shares of all accounts of one site.
func showOwn(ctx context.Context, r *Reach) (all []Shown, err error) {
	name, c, err := r.Own(ctx)
	if err != nil {
		return nil, err
	}
	v, err := admin.CurrentVersion(ctx, c)
	if err != nil {
		return nil, err
	}
	move, err := admin.UnfinishedMove(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range v.Config.Accounts {
		a := &v.Config.Accounts[i]
		if len(a.Shares) == 0 {
			continue
		}
		s := Shown{Account: a.Name, Site: name, InForce: a.Share, Version: v.Number}
		s.File, _ = a.ByFile(name)
		s.unfinished(move)
		all = append(all, s)
	}
	return all, nil
}

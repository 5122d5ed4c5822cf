package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/bucket"
	"weir/cmd/weir/internal/config/field"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/config/problem"
)

// Share is the part of an account's limits that one site enforces.
type Share struct {
	Site    string
	Percent int64 // 1 to 100
}

// mostSites bounds the sites of an account.
const mostSites = 100

// shares returns the kind of a mapping from sites to their shares. Its texts show the share in force for site, and the
// shares in the file for the others.
func shares(a *Account, site string, inForce map[string]int64) field.Kind {
	part := field.Percent(1, bucket.WholeShare)
	return field.Kind{
		Words: "a mapping of at most 100 sites to percentages, together at most 100%",
		Shape: func(field.Object) field.Object {
			return field.Object{
				"type": []string{"object", "null"}, "maxProperties": mostSites, "additionalProperties": false,
				"patternProperties": field.Object{field.NamePattern: part.Schema},
			}
		},
		Read: func(v field.Value, _ string) field.Texts {
			a.Shares = nil
			all := field.Texts{}
			entries, _ := v.Entries(mostSites)
			for _, e := range entries {
				if _, err := grammar.ParseName(e.Name); err != nil {
					e.FailWith(err)
					continue
				}
				word, ok := e.Scalar()
				if !ok {
					continue
				}
				n, err := part.Parse(word)
				switch {
				case err != nil:
					e.FailWith(err)
				case n < 1:
					e.Fail("a share of 0% makes no calls", "write 1% or more, or take the site out")
				default:
					a.Shares = append(a.Shares, Share{e.Name, n})
					all[field.JoinPath("", e.Name)] = field.Text{Text: part.Show(n), From: e.Origin()}
				}
			}
			slices.SortFunc(a.Shares, func(x, y Share) int { return strings.Compare(x.Site, y.Site) })
			if n, known := inForce[a.Name]; known && site != "" {
				if path := field.JoinPath("", site); all[path].Text != part.Show(n) &&
					(n < bucket.WholeShare || len(a.Shares) > 0) {
					all[path] = field.Text{Text: part.Show(n), From: field.Origin{Moved: true}}
				}
			}
			return all
		},
	}
}

// ByFile returns the share that the file gives a site. If the file gives the account no shares, each site has the
// whole. ok is false if the account has shares and the site has none.
func (a *Account) ByFile(site string) (percent int64, ok bool) {
	if len(a.Shares) == 0 {
		return bucket.WholeShare, true
	}
	i := slices.IndexFunc(a.Shares, func(s Share) bool { return s.Site == site })
	if i < 0 {
		return 0, false
	}
	return a.Shares[i].Percent, true
}

// Sites returns the sites of the account, sorted.
func (a *Account) Sites() (names []string) {
	for _, s := range a.Shares {
		names = append(names, s.Site)
	}
	return names
}

// divide replaces the account's limits by the parts that site enforces, and keeps the undivided limits in Whole.
// If the site is not known, divide takes the smallest share, so that the caller calls too little rather than too much.
func (a *Account) divide(f field.Fields, site string, inForce map[string]int64) {
	a.Share, a.Whole = bucket.WholeShare, a.Rules.Shared
	if !f.Fine("shares", "limits") {
		return
	}
	place, sum := f.Place("shares"), int64(0)
	for _, s := range a.Shares {
		sum += s.Percent
		a.part(place, s)
	}
	if sum > bucket.WholeShare {
		place.Fail(fmt.Sprintf("the shares are %d%% together", sum), "lower them to at most 100%")
	}
	share, ok := a.ByFile(site)
	switch {
	case site == "" && len(a.Shares) > 0:
		share = slices.MinFunc(a.Shares, func(x, y Share) int { return int(x.Percent - y.Percent) }).Percent
	case !ok:
		place.Fail("the site "+problem.Quote(site)+" has no share",
			"write "+site+": N%, or set WEIR_SITE to "+field.Either(a.Sites()))
		return
	}
	if now, known := inForce[a.Name]; known {
		share = now
	}
	a.Share, a.Rules.Shared = share, a.part(place, Share{site, share})
}

// part returns a site's part of each limit. It reports a problem for each limit whose part would be nothing.
func (a *Account) part(place field.Value, of Share) []bucket.Limit {
	parts := slices.Clone(a.Whole)
	for i, l := range a.Whole {
		p, err := l.Part(of.Percent)
		if err != nil {
			place.Fail(fmt.Sprintf("site %s, limit %s: %v", of.Site, l.Name, err), "give the site more, or raise the limit")
			continue
		}
		parts[i] = p
	}
	return parts
}

// Site returns the site for which the configuration was read, or "" if there is none.
func (c *Config) Site() string { return c.site }

// InForce returns the shares of this site that are in force, by account. It includes accounts that are no longer
// configured: if such an account comes back, its share is still in force.
func (c *Config) InForce() map[string]int64 {
	all := maps.Clone(c.inForce)
	for i := range c.Accounts {
		if a := &c.Accounts[i]; len(a.Shares) > 0 {
			if all == nil {
				all = map[string]int64{}
			}
			all[a.Name] = a.Share
		}
	}
	return all
}

// Shared reports whether an account has shares.
func (c *Config) Shared() bool {
	return slices.ContainsFunc(c.Accounts, func(a Account) bool { return len(a.Shares) > 0 })
}

// RefuseSite returns why a process at a site cannot run with the configuration, or nil if it can. site is "" for a
// process that does not know its site.
func (c *Config) RefuseSite(site string) error {
	switch {
	case !c.Shared() && len(c.InForce()) == 0:
		return nil
	case site == "":
		return c.siteProblem("the accounts have shares, and this weir does not know its site",
			"set WEIR_SITE to "+field.Either(c.siteNames()))
	case c.site != site:
		return c.siteProblem(fmt.Sprintf("the store is of site %s, and WEIR_SITE says %s", problem.Quote(c.site),
			problem.Quote(site)),
			"set WEIR_SITE="+c.site+", or use the store of "+site+": each site has its own")
	}
	return nil
}

// siteNames returns the names of all sites, sorted.
func (c *Config) siteNames() []string {
	all := map[string]bool{}
	for i := range c.Accounts {
		for _, name := range c.Accounts[i].Sites() {
			all[name] = true
		}
	}
	if c.site != "" {
		all[c.site] = true
	}
	return slices.Sorted(maps.Keys(all))
}

func (c *Config) siteProblem(message, fix string) error {
	return &problem.Errors{File: c.File, Problems: []problem.Problem{{Path: "WEIR_SITE", Message: message, Fix: fix}}}
}

// Succession says what a new file may do to the shares in force.
type Succession string

// The successions.
const (
	// Lowering lets a new file lower this site's share. A file that would raise the share is refused.
	Lowering Succession = "lowering"
	// Keeping keeps the shares in force, whatever the file says.
	Keeping Succession = "keeping"
)

// Succeed returns c with the shares that are in force at a site after c has replaced before. Only a move of shares
// raises a share. If c's file gives the site the same share as before's file, or the share in force, the share in force
// stays. before is nil if there was no configuration. site is "" if the caller does not know the site.
func (c *Config) Succeed(before *Config, site string, how Succession) (*Config, error) {
	inForce := map[string]int64{}
	if before != nil {
		if inForce = maps.Clone(before.InForce()); inForce == nil {
			inForce = map[string]int64{}
		}
		if site == "" {
			site = before.site
		}
		if before.site != "" {
			if err := before.RefuseSite(site); err != nil {
				return nil, err
			}
		}
	}
	if site == "" && c.Shared() {
		return nil, c.RefuseSite("")
	}
	var problems []problem.Problem
	for i := range c.Accounts {
		a := &c.Accounts[i]
		said, has := a.ByFile(site)
		held, known := inForce[a.Name]
		was, were := before.account(a.Name)
		if !known && were {
			held, known = bucket.WholeShare, true // the account never had shares
		}
		share, renamed := c.formerShare(before, a)
		if renamed = renamed && (!known || share < held); renamed {
			if held, known = share, true; how == Keeping {
				inForce[a.Name] = share
			}
		}
		same := false
		if were && !renamed {
			formerly, had := was.ByFile(site)
			same = had && formerly == said && (len(was.Shares) > 0) == (len(a.Shares) > 0)
		}
		switch {
		case !has, !known, how == Keeping: // Parse refuses an account without a share for the site
		case same:
		case said <= held:
			inForce[a.Name] = said
		default:
			problems = append(problems, problem.Problem{
				Path: "accounts." + a.Name + ".shares",
				Message: fmt.Sprintf("the file gives site %s %d%%, and %d%% is in force: a file may lower a share, and never "+
					"raises it", site, said, held),
				Fix: fmt.Sprintf("write %s: %d%%, and raise it by weir shares %s %s=%d%%", site, held, a.Name, site, said),
			})
		}
	}
	if len(problems) > 0 {
		return nil, &problem.Errors{File: c.File, Problems: problems}
	}
	return Parse(c.text, Options{Name: c.File, Site: site, Shares: inForce})
}

// formerShare returns the share in force that account a had under another name. That is an account with a share in
// force from which an api has moved to a and in which no api has stayed; of several such accounts, the smallest share
// counts. Either account may stand in both files, without apis in one of them. ok is false if there is no such account,
// or if a had apis before.
func (c *Config) formerShare(before *Config, a *Account) (share int64, ok bool) {
	if before == nil || slices.ContainsFunc(before.APIs, func(x API) bool { return x.Account == a.Name }) {
		return 0, false
	}
	inForce := before.InForce()
	for i := range c.APIs {
		if c.APIs[i].Account != a.Name {
			continue
		}
		was, _ := before.API(c.APIs[i].Name)
		if was == nil || was.Account == "" {
			continue
		}
		if of, shared := inForce[was.Account]; shared && !c.keepsAPI(before, was.Account) && (!ok || of < share) {
			share, ok = of, true
		}
	}
	return share, ok
}

// keepsAPI reports whether one of the account's apis was already in the account before.
func (c *Config) keepsAPI(before *Config, account string) bool {
	return slices.ContainsFunc(c.APIs, func(a API) bool {
		was, _ := before.API(a.Name)
		return a.Account == account && was != nil && was.Account == account
	})
}

// account is Account for a configuration that may be nil.
func (c *Config) account(name string) (*Account, bool) {
	if c == nil {
		return nil, false
	}
	return c.Account(name)
}

// WithShare returns the configuration with another share of an account in force at this site.
func (c *Config) WithShare(account string, percent int64) (*Config, error) {
	inForce := maps.Clone(c.InForce())
	if inForce == nil {
		inForce = map[string]int64{}
	}
	inForce[account] = percent
	return Parse(c.text, Options{Name: c.File, Site: c.site, Shares: inForce})
}

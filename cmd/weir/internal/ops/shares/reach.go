package shares

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
)

// Reach holds connections to sites. It is not safe for concurrent use.
type Reach struct {
	settings *environment.Settings
	open     map[string]*connect.Connection // by site
	own      string                         // the site of the server that commands use by default, once it is known
}

// NewReach returns a Reach to the sites that the settings name. It opens no connection.
func NewReach(settings *environment.Settings) *Reach {
	return &Reach{settings: settings, open: map[string]*connect.Connection{}}
}

// Close ends all connections.
func (r *Reach) Close() {
	for _, c := range r.open {
		c.Close()
	}
}

// Sites returns the sites that WEIR_SITES names, sorted.
func (r *Reach) Sites() (names []string) {
	for _, s := range r.settings.Sites {
		names = append(names, s.Site)
	}
	return names
}

// To returns a connection to a site. It fails if the server there belongs to another site.
func (r *Reach) To(ctx context.Context, site string) (*connect.Connection, error) {
	if c := r.open[site]; c != nil {
		return c, nil
	}
	i := slices.IndexFunc(r.settings.Sites, func(s environment.SiteAt) bool { return s.Site == site })
	if i < 0 {
		if name, c, err := r.Own(ctx); err == nil && name == site {
			return c, nil
		}
		return nil, cli.Usage(fmt.Errorf("WEIR_SITES does not say where site %s is: set WEIR_SITES=%s, with the names of contexts of the nats command, or addresses",
			site, r.example(site)))
	}
	settings, err := environment.ReadOf(r.settings.Sites[i])
	if err != nil {
		return nil, cli.Usage(err)
	}
	c, err := connect.DialAs(settings)
	if err != nil {
		return nil, err
	}
	v, err := admin.CurrentVersion(ctx, c)
	if err == nil && v.Site != site {
		err = fmt.Errorf("the server at %s is of %s: WEIR_SITES names it for %s", c.At, named(v.Site), site)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	r.open[site] = c
	return c, nil
}

// named returns words for a site.
func named(site string) string {
	if site == "" {
		return "no site"
	}
	return "site " + site
}

// example returns a value of WEIR_SITES that also names site.
func (r *Reach) example(site string) string {
	var parts []string
	for _, s := range append(r.Sites(), site) {
		parts = append(parts, s+"=CONTEXT")
	}
	return strings.Join(parts, ",")
}

// errNoSite says that a server has no accounts with shares.
var errNoSite = errors.New("no account has shares here")

// Own returns the site of the server that commands use by default, and a connection to it.
func (r *Reach) Own(ctx context.Context) (string, *connect.Connection, error) {
	if r.own != "" {
		return r.own, r.open[r.own], nil
	}
	c, err := connect.DialAs(r.settings)
	if err != nil {
		return "", nil, err
	}
	v, err := admin.CurrentVersion(ctx, c)
	if err == nil && v.Site == "" {
		err = cli.NotFound(errNoSite)
	}
	if err != nil {
		c.Close()
		return "", nil, err
	}
	if known := r.open[v.Site]; known != nil {
		c.Close()
		c = known
	}
	r.own, r.open[v.Site] = v.Site, c
	return v.Site, c, nil
}

// all returns connections to all sites of an account: the sites in WEIR_SITES that have the account, the sites in
// target, and the sites that the configuration of another site names.
func (r *Reach) all(ctx context.Context, account string, target map[string]int64) (map[string]*connect.Connection, error) {
	found, next := map[string]*connect.Connection{}, slices.Sorted(maps.Keys(target))
	if len(next) == 0 {
		site, _, err := r.Own(ctx)
		if err != nil && len(r.settings.Sites) == 0 {
			return nil, err
		} else if err == nil {
			next = append(next, site)
		}
	}
	next = append(next, r.Sites()...)
	for len(next) > 0 {
		site := next[0]
		next = next[1:]
		if found[site] != nil {
			continue
		}
		c, err := r.To(ctx, site)
		if err != nil {
			return nil, fmt.Errorf("site %s: %w", site, err)
		}
		v, err := admin.CurrentVersion(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("site %s: %w", site, err)
		}
		a, ok := v.Config.Account(account)
		if _, wanted := target[site]; !wanted && (!ok || len(a.Shares) == 0) {
			continue // it is a site of other accounts
		} else if !ok || len(a.Shares) == 0 {
			return nil, cli.NotFound(fmt.Errorf("site %s has no account %s with shares", site, account))
		}
		found[site] = c
		next = append(next, a.Sites()...)
	}
	if len(found) == 0 {
		return nil, cli.NotFound(fmt.Errorf("no site has an account %s with shares", account))
	}
	return found, nil
}

package shares

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/schedule"
	"weir/dispatcher/sites"
)

// site is one site of a move. Its claims belong to version, the configuration that the move last read or stored there.
type site struct {
	*Move

	name    string
	c       *connect.Connection
	version *admin.Claimed
}

var _ sites.Site = (*site)(nil)

// Claim implements sites.Site.
func (s *site) Claim(ctx context.Context) (sites.Claim, error) {
	var err error
	s.version, err = admin.ClaimShares(ctx, s.c, s.note())
	if err != nil {
		return sites.Claim{}, s.overtaken(err)
	}
	if s.version.Site != s.name {
		return sites.Claim{}, fmt.Errorf("the server at %s is of %s", s.c.At, named(s.version.Site))
	}
	return s.claim()
}

// claim returns the claim that belongs to version.
func (s *site) claim() (sites.Claim, error) {
	a, ok := s.version.Config.Account(s.Account)
	if !ok || len(a.Shares) == 0 {
		return sites.Claim{}, fmt.Errorf("the account %s has no shares here", s.Account)
	}
	return sites.Claim{Share: a.Share, Sites: a.Sites(), Revision: s.version.Number}, nil
}

// Check implements sites.Site.
func (s *site) Check(_ sites.Claim, percent int64) error {
	c, err := s.version.Config.WithShare(s.Account, percent)
	if err != nil {
		return err
	}
	for i := range c.APIs {
		rules := c.APIs[i].CallRules()
		if err := rules.Validate(); err != nil {
			return fmt.Errorf("api %s with %d%%: %w", c.APIs[i].Name, percent, err)
		}
	}
	return nil
}

// Set implements sites.Site.
func (s *site) Set(ctx context.Context, _ sites.Claim, percent int64) (sites.Claim, error) {
	next, err := s.version.SetShare(ctx, s.c, s.Talk, s.Account, percent, s.command())
	if err != nil {
		return sites.Claim{}, s.overtaken(err)
	}
	s.version = next
	return s.claim()
}

// overtaken says what to do if the error is ErrLostRace. It returns other errors unchanged.
func (s *site) overtaken(err error) error {
	if !errors.Is(err, admin.ErrLostRace) {
		return err
	}
	return fmt.Errorf("%w at the site: look at `weir shares %s`, and run the command again", sites.ErrOvertaken, s.Account)
}

// Confirm implements sites.Site.
func (s *site) Confirm(ctx context.Context, _ sites.Claim) error {
	return s.overtaken(s.version.Confirm(ctx, s.c, s.Account))
}

// Await implements sites.Site.
func (s *site) Await(ctx context.Context, claim sites.Claim) error {
	a, _ := s.version.Config.Account(s.Account)
	rules, lasts, err := s.rules(ctx)
	if err != nil {
		return err
	}
	told, at := "", time.Time{}
	k := admin.Clearing{
		Account: s.Account, Version: claim.Revision, Share: claim.Share, Passes: rules.PassedAfter(a.Whole, schedule.MostAhead),
		Gone: func() time.Duration {
			return s.version.Until(func(now time.Time) time.Time {
				return rules.Gone(a.Whole, bucket.MicrosOf(now), schedule.MostAhead, lasts).Time()
			})
		},
		Say: func(why string) {
			if why == told && time.Since(at) < sayAgain {
				return
			}
			told, at = why, time.Now()
			_, _ = fmt.Fprintf(s.Talk, "weir: site %s: waiting: %s\n", s.name, why)
		},
	}
	return k.AwaitClear(ctx, s.c, prefixed{s.Talk, s.name})
}

// sayAgain is how long a move waits before it says the same reason again.
const sayAgain = time.Minute

// rules returns the rules by which the account's limits count at the site, and how long a call may count as in flight.
// If no api of the account is configured there, it takes the greatest jitter and the longest such time from former
// versions, because calls of their apis may still count.
func (s *site) rules(ctx context.Context) (rules bucket.Rules, lasts time.Duration, err error) {
	if rules, lasts, ok := rulesOf(s.version.Config, s.Account); ok {
		return rules, lasts, nil
	}
	entries, err := admin.ConfigHistory(ctx, s.c)
	if err != nil {
		return rules, 0, err
	}
	rules.Jitter, lasts = config.DefaultJitter, bucket.DefaultLease
	for _, entry := range entries {
		v, err := admin.ReadVersion(entry)
		if err != nil {
			continue
		}
		if former, lasted, ok := rulesOf(v.Config, s.Account); ok {
			rules.Jitter, lasts = max(rules.Jitter, former.Jitter), max(lasts, lasted)
		}
	}
	return rules, lasts, nil
}

// rulesOf returns the rules by which the account's limits count in a configuration, and how long a call may count as in
// flight. ok is false if the configuration names no api of the account.
func rulesOf(c *config.Config, account string) (rules bucket.Rules, lasts time.Duration, ok bool) {
	for i := range c.APIs {
		of := c.APIs[i].CallRules()
		if of.In == nil || of.In.Account != account {
			continue
		}
		rules, ok = of.By(&bucket.Limit{Account: account}), true
		lasts = max(lasts, time.Duration(rules.LeaseMicros())*time.Microsecond)
		if o := c.APIs[i].Operation; o != nil && o.HoldSlot {
			lasts = max(lasts, o.Poll.For)
		}
	}
	return rules, lasts, ok
}

// prefixed writes lines with the name of a site.
type prefixed struct {
	to   io.Writer
	site string
}

// Write implements io.Writer.
func (p prefixed) Write(line []byte) (int, error) {
	if _, err := fmt.Fprintf(p.to, "site %s: ", p.site); err != nil {
		return 0, err
	}
	return p.to.Write(line)
}

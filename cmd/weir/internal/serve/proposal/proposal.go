package proposal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/serve/admin"
	"weir/cmd/weir/internal/serve/limitstate"
)

// Proposal is a configuration that is to replace the one in force.
type Proposal struct {
	Who    string // the proposing user
	From   string // where the text comes from: a file, or an earlier version
	Text   string
	Config *config.Config
	Site   string // the site of the proposing process; empty: that of the version in force

	current *admin.Version // the version in force; nil: there is none
	last    uint64         // the newest revision in NATS when the proposal was compared
	back    bool           // the proposal is a rollback
}

// Applied is the outcome of a proposal.
type Applied struct {
	Applied    bool            `json:"applied"` // false: nothing changes
	OldVersion uint64          `json:"old_version"`
	Version    uint64          `json:"version"` // the newest version afterwards
	Changes    []config.Change `json:"changes"`
	// Spent are the new and changed quotas and budgets that are used up under the new configuration.
	Spent []limitstate.Spent `json:"spent,omitempty"`
}

// Difference is the set of changes that a proposal would make.
type Difference struct {
	*Applied
	Same   bool  // nothing would change, and nothing would be stored
	Unread error // why Spent is not complete; nil if it is complete
}

// Apply puts a proposal in force, and blocks until every dispatching replica follows. If a replica cannot follow, Apply
// stores the former configuration again. Before anything changes, Apply calls agree with the changes. If agree returns
// false or an error, Apply ends. Apply writes progress to talk. If Apply fails, the returned Applied is still valid,
// unless it is nil.
func (p *Proposal) Apply(ctx context.Context, c *connect.Connection, talk io.Writer, agree func(Difference) (bool, error)) (*Applied, error) {
	store, err := admin.OpenConfigStore(ctx, c)
	never := err != nil && admin.NeverApplied(err)
	if err == nil && !p.back {
		p.current, p.last, err = store.Newest(ctx)
	}
	if err != nil && !never {
		return nil, c.Explain(err)
	}
	if err := p.before().CheckUnits(p.Config, p.From); err != nil {
		return nil, err
	}
	if err := p.succeed(); err != nil {
		return nil, err
	}
	d := p.differs()
	if !d.Same {
		d.Spent, d.Unread = limitstate.SpentAlready(ctx, c.JetStream, p.before(), p.Config, time.Now())
		d.Unread = c.Explain(d.Unread)
	}
	if agreed, err := agree(d); err != nil || !agreed {
		return d.Applied, err
	}
	if d.Same {
		return d.Applied, admin.AwaitFollowed(ctx, c, talk, d.Version)
	}
	if never {
		if store, err = admin.MakeConfigStore(ctx, c); err != nil {
			return d.Applied, err
		}
	}
	return d.Applied, p.put(ctx, c, store, talk, d.Applied)
}

// Earlier returns a proposal to roll back to the wanted version; 0 means the readable version before the one in force.
func Earlier(ctx context.Context, c *connect.Connection, who string, wanted uint64) (*Proposal, error) {
	entries, err := admin.ConfigHistory(ctx, c)
	if err != nil {
		return nil, err
	}
	p := &Proposal{Who: who, back: true}
	if p.current, err = admin.NewestReadable(entries); err != nil {
		return nil, err
	}
	var target *admin.Version
	for _, entry := range slices.Backward(entries) {
		p.last = max(p.last, entry.Revision())
		v, err := admin.ReadVersion(entry)
		switch {
		case err != nil && entry.Revision() == wanted:
			return nil, fmt.Errorf("version %d cannot be applied: %w", wanted, err)
		case err != nil:
			continue
		case v.Number == p.current.Number:
		case wanted == 0 && target == nil:
			target = v
		}
		if v.Number == wanted {
			target = v
		}
	}
	switch {
	case target == nil && wanted == 0:
		return nil, cli.NotFound(errors.New("there is no version before the present one"))
	case target == nil:
		return nil, cli.NotFound(fmt.Errorf("version %d is not kept: `weir config history` lists those that are", wanted))
	}
	p.From, p.Text, p.Config = fmt.Sprintf("version %d", target.Number), target.YAML, target.Config
	return p, nil
}

// succeed gives the proposal the shares of accounts that are in force. A rollback changes none of them.
func (p *Proposal) succeed() (err error) {
	how := config.Lowering
	if p.back {
		how = config.Keeping
	}
	p.Config, err = p.Config.Succeed(p.before(), p.Site, how)
	return err
}

func (p *Proposal) before() *config.Config {
	if p.current == nil {
		return nil
	}
	return p.current.Config
}

// differs compares a proposal with the version in force. If the newest version cannot be read, it must be replaced,
// even by the same text as the version before it. If the version in force was stored with other vendors' profiles, it
// must be replaced too: the new version records the profiles that the operator has seen.
func (p *Proposal) differs() Difference {
	d := Difference{Applied: &Applied{Changes: p.before().Diff(p.Config)}}
	if p.current != nil {
		d.OldVersion, d.Version = p.current.Number, p.current.Number
	}
	if d.Changes == nil {
		d.Changes = []config.Change{}
	}
	d.Same = len(d.Changes) == 0 && p.current != nil && p.last == p.current.Number && maps.Equal(p.current.Vendors, p.Config.Vendors())
	return d
}

// put stores a proposal and publishes the event. It blocks until every dispatching replica follows. If a replica cannot
// follow, put takes the proposal back.
func (p *Proposal) put(ctx context.Context, c *connect.Connection, store admin.ConfigStore, talk io.Writer, applied *Applied) error {
	next := admin.StoredConfig{
		YAML: p.Text, From: p.From, Who: p.Who, At: time.Now().UTC(), Changes: len(applied.Changes), Vendors: p.Config.Vendors(),
	}
	next.Take(p.Config)
	switch {
	case p.current == nil:
		next.Order = (*admin.StoredConfig)(nil).After()
	case p.back:
		p.current.RollBack(&next)
	default:
		p.current.Follow(&next)
	}
	version, err := store.Put(ctx, next, p.last)
	if errors.Is(err, admin.ErrLostRace) {
		return fmt.Errorf("%w: nothing was applied; look at `weir config show` and apply again", err)
	} else if err != nil {
		return c.Explain(err)
	}
	applied.Applied, applied.Version = true, version
	announce(ctx, c, talk, next, *applied)
	err = admin.AwaitFollowed(ctx, c, talk, version)
	if errors.Is(err, admin.ErrCannotFollow) {
		err = p.takeBack(ctx, c, store, talk, &next, applied, err)
	}
	return err
}

// announce publishes the event that a version was stored, and writes the version's number to talk.
func announce(ctx context.Context, c *connect.Connection, talk io.Writer, next admin.StoredConfig, applied Applied) {
	data := admin.ConfigChange{Who: next.Who, From: next.From, OldVersion: applied.OldVersion, NewVersion: applied.Version, Changes: next.Changes}
	if err := data.Event().Publish(ctx, c.JetStream); err != nil {
		_, _ = fmt.Fprintf(talk, "weir: applied, but the notification could not be stored: %v\n", err)
	}
	_, _ = fmt.Fprintf(talk, "weir: stored as version %d\n", applied.Version)
}

// takeBack stores the former configuration again if a replica cannot follow the new one. Otherwise commands would show
// and use a version that no replica runs. takeBack stores nothing if another client has changed the configuration
// since. Some replicas may already follow the configuration in failed, so the former one gets a later Order. takeBack
// keeps a share that failed has lowered, because another site may have been raised meanwhile. If failed gave an account
// its first shares, takeBack keeps the share only if a move may have claimed the site since. Otherwise it removes the
// share, so that a replica that does not know its site can follow again. takeBack always returns an error that includes
// why.
func (p *Proposal) takeBack(ctx context.Context, c *connect.Connection, store admin.ConfigStore, talk io.Writer,
	failed *admin.StoredConfig, applied *Applied, why error,
) error {
	if p.current == nil {
		return fmt.Errorf("%w; it stays stored, because there was none before it: fix it, or apply another", why)
	}
	former := p.current.StoredConfig
	former.From = fmt.Sprintf("version %d, since version %d cannot be followed", p.current.Number, applied.Version)
	former.Who, former.At, former.Changes, former.Order = p.Who, time.Now().UTC(), len(applied.Changes), failed.After()
	var shared []string // accounts that have a share only in failed
	kept, lowered := p.current.Config, ""
	keep := func(account string) (err error) {
		if kept, err = kept.WithShare(account, failed.Shares[account]); err != nil {
			return fmt.Errorf("%w; it could not be rolled back: %w", why, err)
		}
		former.Site, former.Shares = failed.Site, kept.InForce()
		lowered += fmt.Sprintf(", except that account %s keeps the share of %d%%", account, failed.Shares[account])
		return nil
	}
	for _, account := range slices.Sorted(maps.Keys(failed.Shares)) {
		if held, known := former.Shares[account]; !known {
			shared = append(shared, account)
		} else if failed.Shares[account] < held {
			if err := keep(account); err != nil {
				return err
			}
		}
	}
	version, err := uint64(0), admin.ErrLostRace
	if len(shared) > 0 {
		version, err = admin.PutUnclaimed(ctx, c.JetStream, former, applied.Version)
	}
	if errors.Is(err, admin.ErrLostRace) {
		for _, account := range shared { // a move may have claimed the site since, and counted on the share
			if err := keep(account); err != nil {
				return err
			}
		}
		version, err = store.Put(ctx, former, applied.Version)
	}
	if err != nil {
		return fmt.Errorf("%w; it could not be rolled back: %w", why, err)
	}
	back := Applied{OldVersion: applied.Version, Version: version}
	applied.Applied, applied.Version = false, version
	announce(ctx, c, talk, former, back)
	why = fmt.Errorf("%w; it was rolled back: version %d is the same as version %d%s", why, version, p.current.Number, lowered)
	return errors.Join(why, admin.AwaitFollowed(ctx, c, talk, version))
}

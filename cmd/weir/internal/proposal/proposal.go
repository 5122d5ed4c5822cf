package proposal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/limitstate"

	"github.com/nats-io/nats.go/jetstream"
)

// Proposal is a configuration that is to take the place of another.
type Proposal struct {
	Who    string // proposes it
	From   string // where it comes from: a file, or an earlier version
	Text   string
	Config *config.Config

	current *control.Version // nil for none
	last    uint64           // the revision it was compared with
	back    bool             // it takes current out of force
}

// Applied is what became of a proposal.
type Applied struct {
	Applied    bool            `json:"applied"` // false: nothing changes
	OldVersion uint64          `json:"old_version"`
	Version    uint64          `json:"version"` // the newest now
	Changes    []config.Change `json:"changes"`
	// Spent are changed quotas and budgets of which nothing is left under the new configuration.
	Spent []limitstate.Spent `json:"spent,omitempty"`
}

// Against compares a proposal with what is in force now.
func (p *Proposal) Against(ctx context.Context, c *connect.Connection, store control.ConfigStore) (err error) {
	p.current, p.last, err = store.Newest(ctx)
	return c.Explain(err)
}

// Earlier proposes the wanted version of a history, 0 for the one before that in force.
func Earlier(entries []jetstream.KeyValueEntry, wanted uint64) (*Proposal, error) {
	p := &Proposal{back: true}
	var target *control.Version
	for _, entry := range slices.Backward(entries) {
		p.last = max(p.last, entry.Revision())
		v, err := control.ReadVersion(entry)
		switch {
		case err != nil && entry.Revision() == wanted:
			return nil, fmt.Errorf("version %d cannot be applied: %w", wanted, err)
		case err != nil:
			continue
		case p.current == nil:
			p.current = v
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

func (p *Proposal) before() *config.Config {
	if p.current == nil {
		return nil
	}
	return p.current.Config
}

// Differs tells what would change. same says that nothing would, and that nothing needs to be stored: a last version that nobody can
// read is to be replaced, even by the text of the one before it.
func (p *Proposal) Differs() (told Applied, same bool) {
	if p.current != nil {
		told.OldVersion = p.current.Number
	}
	told.Version, told.Changes = told.OldVersion, p.before().Diff(p.Config)
	if told.Changes == nil {
		told.Changes = []config.Change{}
	}
	return told, len(told.Changes) == 0 && p.current != nil && p.last == p.current.Number
}

// SpentAlready are the limits that would keep everything from being called as soon as the proposal is in force. What could be read of
// them is told beside an error.
func (p *Proposal) SpentAlready(ctx context.Context, c *connect.Connection) ([]limitstate.Spent, error) {
	spent, err := limitstate.SpentAlready(ctx, c.JetStream, p.before(), p.Config, time.Now())
	return spent, c.Explain(err)
}

// Put stores a proposal, tells of it, and returns when every dispatching replica follows. One that cannot has it taken back. told says
// what became of it, also beside an error; talk hears it in words.
func (p *Proposal) Put(ctx context.Context, c *connect.Connection, store control.ConfigStore, talk io.Writer, told *Applied) error {
	next := control.StoredConfig{YAML: p.Text, From: p.From, Who: p.Who, At: time.Now().UTC(), Changes: len(told.Changes)}
	switch {
	case p.current == nil:
	case p.back:
		p.current.RollBack(&next)
	default:
		p.current.Follow(&next)
	}
	version, err := store.Put(ctx, next, p.last)
	if errors.Is(err, control.ErrLostRace) {
		return fmt.Errorf("%w: nothing was applied; look at `weir config show` and apply again", err)
	} else if err != nil {
		return c.Explain(err)
	}
	told.Applied, told.Version = true, version
	announce(ctx, c, talk, next, *told)
	err = control.AwaitFollowed(ctx, c, talk, version)
	if errors.Is(err, control.ErrCannotFollow) {
		err = p.takeBack(ctx, c, store, talk, told, err)
	}
	return err
}

// announce tells of a version that is stored.
func announce(ctx context.Context, c *connect.Connection, talk io.Writer, next control.StoredConfig, told Applied) {
	data := control.ConfigChange{Who: next.Who, From: next.From, OldVersion: told.OldVersion, NewVersion: told.Version, Changes: next.Changes}
	if err := data.Event().Publish(ctx, c.JetStream); err != nil {
		_, _ = fmt.Fprintf(talk, "weir: applied, but the notification could not be stored: %v\n", err)
	}
	_, _ = fmt.Fprintf(talk, "weir: stored as version %d\n", told.Version)
}

// takeBack puts what was in force before a version that cannot be followed in its place, unless somebody else has changed
// the configuration since: what nobody runs by must not be what show, pause and resume go by. It always fails, with why.
func (p *Proposal) takeBack(ctx context.Context, c *connect.Connection, store control.ConfigStore, talk io.Writer, told *Applied, why error) error {
	if p.current == nil {
		return fmt.Errorf("%w; it stays stored, since there was none before it: mend that there, or apply another", why)
	}
	former := p.current.StoredConfig
	former.From = fmt.Sprintf("version %d, since version %d cannot be followed", p.current.Number, told.Version)
	former.Who, former.At, former.Changes = p.Who, time.Now().UTC(), len(told.Changes)
	version, err := store.Put(ctx, former, told.Version)
	if err != nil {
		return fmt.Errorf("%w; it was not taken back: %w", why, err)
	}
	back := Applied{OldVersion: told.Version, Version: version}
	told.Applied, told.Version = false, version
	announce(ctx, c, talk, former, back)
	why = fmt.Errorf("%w; it was taken back: version %d says what version %d said", why, version, p.current.Number)
	return errors.Join(why, control.AwaitFollowed(ctx, c, talk, version))
}

package httpapi

import (
	"context"
	"io"

	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/proposal"
)

// configText is a proposed configuration.
type configText struct {
	YAML   string `json:"yaml"`
	From   string `json:"from,omitempty"`    // where it is from, for the history
	DryRun bool   `json:"dry_run,omitempty"` // only say what would change
}

// configCheck is a configuration to be checked.
type configCheck struct {
	YAML string `json:"yaml"`
}

// rollbackWord names the version to put in force again.
type rollbackWord struct {
	Version uint64 `json:"version,omitempty"` // absent: the one before the version in force
	DryRun  bool   `json:"dry_run,omitempty"`
}

// configBody bounds the request with a configuration, in bytes. JSON may take six bytes for each byte of the
// configuration.
const configBody = 4 << 20

// proposals checks configurations and applies them.
type proposals struct{ *Options }

func (p *proposals) check(_ context.Context, r *request) (any, error) {
	said, err := read[configCheck](r)
	if err != nil {
		return nil, err
	}
	v, _, err := proposal.Check("yaml", []byte(said.YAML), p.Scope())
	return v, err
}

func (p *proposals) apply(ctx context.Context, r *request) (any, error) {
	said, err := read[configText](r)
	if err != nil {
		return nil, err
	}
	from := said.From
	if from == "" {
		from = "HTTP"
	}
	c, err := config.Parse([]byte(said.YAML), config.Options{Name: "yaml"})
	if err != nil {
		return nil, err
	}
	return p.put(ctx, &proposal.Proposal{Who: r.who.String(), From: from, Text: said.YAML, Config: c, Site: p.Settings.Site}, said.DryRun)
}

func (p *proposals) rollback(ctx context.Context, r *request) (any, error) {
	said, err := readIfAny[rollbackWord](r)
	if err != nil {
		return nil, err
	}
	earlier, err := proposal.Earlier(ctx, p.Connection, r.who.String(), said.Version)
	if err != nil {
		return nil, err
	}
	return p.put(ctx, earlier, said.DryRun)
}

// put applies a proposal, or only reports what it would change if dryRun is set.
func (p *proposals) put(ctx context.Context, proposed *proposal.Proposal, dryRun bool) (any, error) {
	return proposed.Apply(ctx, p.Connection, io.Discard, func(d proposal.Difference) (bool, error) {
		if d.Unread != nil {
			p.Log.Warn("cannot read what is left of changed limits", "err", d.Unread)
		}
		return !dryRun, nil
	})
}

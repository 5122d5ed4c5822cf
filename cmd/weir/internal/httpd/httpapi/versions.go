package httpapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/serve/admin"
)

// versionList answers GET /config/history.
type versionList struct {
	Versions []admin.PastVersion `json:"versions"` // the newest first
}

// difference answers GET /config/diff.
type difference struct {
	From    uint64          `json:"from"`
	To      uint64          `json:"to"`
	Changes []config.Change `json:"changes"`
}

// explanation answers GET /config/explain.
type explanation struct {
	Version uint64             `json:"version"`
	Values  []config.Explained `json:"values"`
}

// versions answers with versions of the configuration: the one in force, earlier ones, and comparisons.
type versions struct{ *Options }

// current answers GET /config.
func (v *versions) current(ctx context.Context, _ *request) (any, error) {
	inForce, err := admin.CurrentVersion(ctx, v.Connection)
	if err != nil {
		return nil, err
	}
	return inForce.Shown(), nil
}

// explain answers GET /config/explain.
func (v *versions) explain(ctx context.Context, _ *request) (any, error) {
	inForce, err := admin.CurrentVersion(ctx, v.Connection)
	if err != nil {
		return nil, err
	}
	return explanation{inForce.Number, inForce.Config.Explain()}, nil
}

// list answers GET /config/history.
func (v *versions) list(ctx context.Context, _ *request) (any, error) {
	entries, err := admin.ConfigHistory(ctx, v.Connection)
	if err != nil {
		return nil, err
	}
	list := versionList{[]admin.PastVersion{}}
	for _, entry := range slices.Backward(entries) {
		list.Versions = append(list.Versions, admin.PastVersionOf(entry))
	}
	return list, nil
}

// show answers GET /config/versions/{version}.
func (v *versions) show(ctx context.Context, r *request) (any, error) {
	kept, err := v.numbered(ctx, r.PathValue("version"))
	if err != nil {
		return nil, err
	}
	return kept.Shown(), nil
}

// numbered returns the stored version with this number.
func (v *versions) numbered(ctx context.Context, text string) (*admin.Version, error) {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil || number == 0 {
		return nil, badRequest("%q is not a version", text)
	}
	entries, err := admin.ConfigHistory(ctx, v.Connection)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Revision() == number {
			return admin.ReadVersion(entry)
		}
	}
	return nil, cli.NotFound(fmt.Errorf("version %d is not kept", number))
}

func (v *versions) compare(ctx context.Context, r *request) (any, error) {
	var to *admin.Version
	var err error
	if text := r.word("to"); text != "" {
		to, err = v.numbered(ctx, text)
	} else {
		to, err = admin.CurrentVersion(ctx, v.Connection)
	}
	if err != nil {
		return nil, err
	}
	var from *admin.Version
	if text := r.word("from"); text != "" {
		from, err = v.numbered(ctx, text)
	} else {
		from, err = v.before(ctx, to.Number)
	}
	if err != nil {
		return nil, err
	}
	d := difference{From: from.Number, To: to.Number, Changes: from.Config.Diff(to.Config)}
	if d.Changes == nil {
		d.Changes = []config.Change{}
	}
	return d, nil
}

// before returns the newest version below number that can still be read.
func (v *versions) before(ctx context.Context, number uint64) (*admin.Version, error) {
	entries, err := admin.ConfigHistory(ctx, v.Connection)
	if err != nil {
		return nil, err
	}
	for _, entry := range slices.Backward(entries) {
		if entry.Revision() >= number {
			continue
		}
		if read, err := admin.ReadVersion(entry); err == nil {
			return read, nil
		}
	}
	return nil, cli.NotFound(errors.New("there is no version before that one"))
}

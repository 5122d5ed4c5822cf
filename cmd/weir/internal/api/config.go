package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/console"
	"weir/cmd/weir/internal/control"
)

// versionList answers GET /config/history.
type versionList struct {
	Versions []control.PastVersion `json:"versions"` // the newest first
}

// difference answers GET /config/diff.
type difference struct {
	From    uint64          `json:"from"`
	To      uint64          `json:"to"`
	Changes []config.Change `json:"changes"`
}

func configRoutes() []route {
	return []route{
		{
			method: "GET", path: "/config", name: "showConfig", role: console.Viewer, answer: control.ShownVersion{},
			summary: "The configuration in force; secrets stand in it by reference only (weir config show)",
			serve: func(a *API, ctx context.Context, _ *request) (any, error) {
				v, err := control.CurrentVersion(ctx, a.Connection)
				if err != nil {
					return nil, err
				}
				return v.Shown(), nil
			},
		},
		{
			method: "GET", path: "/config/history", name: "listVersions", role: console.Viewer, answer: versionList{},
			summary: "The versions of the configuration that are kept, the newest first (weir config history)",
			serve: func(a *API, ctx context.Context, _ *request) (any, error) {
				entries, err := control.ConfigHistory(ctx, a.Connection)
				if err != nil {
					return nil, err
				}
				list := versionList{[]control.PastVersion{}}
				for _, entry := range slices.Backward(entries) {
					list.Versions = append(list.Versions, control.PastVersionOf(entry))
				}
				return list, nil
			},
		},
		{
			method: "GET", path: "/config/versions/{version}", name: "showVersion", role: console.Viewer, answer: control.ShownVersion{},
			summary: "One version of the configuration",
			serve: func(a *API, ctx context.Context, r *request) (any, error) {
				v, err := a.version(ctx, r.PathValue("version"))
				if err != nil {
					return nil, err
				}
				return v.Shown(), nil
			},
		},
		{
			method: "GET", path: "/config/diff", name: "compareVersions", role: console.Viewer, answer: difference{},
			summary: "What one version of the configuration changes in another. Without from it is the version before to, without to that in force",
			query:   []parameter{{name: "from", summary: "a version", kind: text}, {name: "to", summary: "a version", kind: text}},
			serve:   (*API).compare,
		},
	}
}

// version is a version that is kept, by its number.
func (a *API) version(ctx context.Context, text string) (*control.Version, error) {
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil || number == 0 {
		return nil, badRequest("%q is not a version", text)
	}
	entries, err := control.ConfigHistory(ctx, a.Connection)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.Revision() == number {
			return control.ReadVersion(entry)
		}
	}
	return nil, cli.NotFound(fmt.Errorf("version %d is not kept", number))
}

func (a *API) compare(ctx context.Context, r *request) (any, error) {
	var to *control.Version
	var err error
	if text := r.word("to"); text != "" {
		to, err = a.version(ctx, text)
	} else {
		to, err = control.CurrentVersion(ctx, a.Connection)
	}
	if err != nil {
		return nil, err
	}
	var from *control.Version
	if text := r.word("from"); text != "" {
		from, err = a.version(ctx, text)
	} else {
		from, err = a.versionBefore(ctx, to.Number)
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

// versionBefore is the newest that can be read of those before a version.
func (a *API) versionBefore(ctx context.Context, number uint64) (*control.Version, error) {
	entries, err := control.ConfigHistory(ctx, a.Connection)
	if err != nil {
		return nil, err
	}
	for _, entry := range slices.Backward(entries) {
		if entry.Revision() >= number {
			continue
		}
		if v, err := control.ReadVersion(entry); err == nil {
			return v, nil
		}
	}
	return nil, cli.NotFound(errors.New("there is no version before that one"))
}

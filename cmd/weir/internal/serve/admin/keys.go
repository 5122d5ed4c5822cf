package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
)

// KeyList holds the deepest buckets of an api, gathered from all replicas.
type KeyList struct {
	Buckets             []schedule.KeyState
	Resting             []schedule.KeyState // paused keys without jobs, sorted by name
	RestingAll          int                 // the number of paused keys without jobs
	Pause               *schedule.Pause     // the pause of the whole api; nil if there is none
	Keys, Jobs          int
	Missing, Partitions int // the owners of Missing of the api's Partitions did not answer
}

// KeysQuery selects buckets.
type KeysQuery struct {
	Limit int            // at most desk.MaxInspected
	After *desk.KeyPlace // only buckets behind this place; nil: from the deepest on
	Match string         // only keys that contain this text
}

// PlaceOf returns the place of a bucket in the order of a list.
func PlaceOf(k *schedule.KeyState) desk.KeyPlace {
	return desk.KeyPlace{Depth: k.Depth, Key: k.Key}
}

// ParsePlace reads the text of a place. It returns nil for an empty text.
func ParsePlace(text string) (*desk.KeyPlace, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no place is the beginning
	}
	depth, key, found := strings.Cut(text, ":")
	n, err := strconv.Atoi(depth)
	if !found || err != nil || n < 0 {
		return nil, fmt.Errorf("invalid page position %q: use the value that the previous page returned", text)
	}
	return &desk.KeyPlace{Depth: n, Key: key}, nil
}

// Keys gathers the deepest buckets from all owners.
func Keys(c *connect.Connection, api string, limit int) (*KeyList, error) {
	return KeysPage(c, api, KeysQuery{Limit: limit})
}

// KeysPage gathers the selected buckets from all owners, the deepest first.
func KeysPage(c *connect.Connection, api string, q KeysQuery) (*KeyList, error) {
	g := &KeyList{}
	heard, err := askOwners(c, ownersQuestion{
		subject: keysSubject, api: api, body: question(q), waits: answerWaits{firstAnswer, nextAnswer}, unknown: noSuchAPI(api),
	}, func(a *keysAnswer) (desk.APIState, error) {
		g.Buckets = append(g.Buckets, a.Deepest...)
		g.Resting, g.RestingAll = append(g.Resting, a.Resting...), g.RestingAll+a.RestingAll
		g.Keys, g.Jobs = g.Keys+a.Keys, g.Jobs+a.Jobs
		g.Pause = cmp.Or(g.Pause, a.Pause)
		return a.APIState, nil
	})
	if err == nil && heard.owned == 0 {
		err = heard.failed
	}
	if err != nil {
		return nil, err
	}
	g.Partitions, g.Missing = heard.partitions, max(0, heard.partitions-heard.owned)
	slices.SortFunc(g.Buckets, func(a, b schedule.KeyState) int { return PlaceOf(&a).Compare(PlaceOf(&b)) })
	g.Buckets = g.Buckets[:min(q.Limit, len(g.Buckets))]
	slices.SortFunc(g.Resting, func(a, b schedule.KeyState) int { return strings.Compare(a.Key, b.Key) })
	g.Resting = g.Resting[:min(q.Limit, len(g.Resting))]
	return g, nil
}

// noSuchAPI returns the error that the replicas do not know an api.
func noSuchAPI(api string) error { return cli.NotFound(fmt.Errorf("there is no api %q", api)) }

// Show asks the key's owner about the key.
func Show(c *connect.Connection, api, key string, limit int) (*KeyShown, error) {
	var detail *KeyShown
	failed := error(nil)
	err := ask(c, showSubject.Of(api, key), limit, func(data []byte, wrong *operatorError) bool {
		switch {
		case wrong == nil:
			detail = &KeyShown{}
			if json.Unmarshal(data, detail) != nil {
				detail, failed = nil, errUnreadable
			}
			return detail != nil
		case wrong.code == codeNoAPI:
			failed = noSuchAPI(api)
			return true
		case wrong.code == codeNoKey:
			failed = cli.NotFound(fmt.Errorf("no job of %s waits for %s: its bucket is empty", cli.Visible(key), api))
			return true
		case wrong.code != codeNotOur:
			failed = wrong
		}
		return false
	})
	if err == nil && detail == nil {
		err = failed
		if err == nil {
			err = cli.Unreachable(fmt.Errorf("no replica owns the partition of %s yet: try again in a few seconds", cli.Visible(key)))
		}
	}
	return detail, err
}

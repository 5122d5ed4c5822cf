package control

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// KeyList are the deepest buckets of an api over all replicas.
type KeyList struct {
	Buckets             []schedule.KeyState
	Resting             []schedule.KeyState // paused keys without jobs, by name
	RestingAll          int                 // how many of them there are
	Pause               *schedule.Pause     // of the whole api; nil where there is none
	Keys, Jobs          int
	Missing, Partitions int // of the Partitions nobody answered for so many
}

// Keys gathers the deepest buckets from all owners.
func Keys(c *connect.Connection, api string, limit int) (*KeyList, error) {
	g := &KeyList{Partitions: 1, Missing: 1}
	owned, failed := 0, error(nil)
	err := ask(c, keysSubject+api, limit, func(data []byte, wrong *operatorError) bool {
		var a keysAnswer
		switch {
		case wrong != nil && wrong.code == codeNoAPI:
			failed = cli.NotFound(fmt.Errorf("there is no api %q", api))
			return true
		case wrong != nil:
			failed = wrong
			return false
		case json.Unmarshal(data, &a) != nil:
			failed = errors.New("a dispatcher's answer cannot be read: is it another version?")
			return false
		}
		g.Buckets = append(g.Buckets, a.Deepest...)
		g.Resting, g.RestingAll = append(g.Resting, a.Resting...), g.RestingAll+a.RestingAll
		g.Keys, g.Jobs, g.Partitions = g.Keys+a.Keys, g.Jobs+a.Jobs, a.Partitions
		g.Pause = cmp.Or(g.Pause, a.Pause)
		owned += a.Owned
		return owned >= a.Partitions
	})
	if err == nil && owned == 0 {
		err = failed
	}
	if err != nil {
		return nil, err
	}
	g.Missing = max(0, g.Partitions-owned)
	slices.SortStableFunc(g.Buckets, func(a, b schedule.KeyState) int { return b.Depth - a.Depth })
	g.Buckets = g.Buckets[:min(limit, len(g.Buckets))]
	slices.SortFunc(g.Resting, func(a, b schedule.KeyState) int { return strings.Compare(a.Key, b.Key) })
	g.Resting = g.Resting[:min(limit, len(g.Resting))]
	return g, nil
}

// Show asks the key's owner.
func Show(c *connect.Connection, api, key string, limit int) (*KeyShown, error) {
	var detail *KeyShown
	failed := error(nil)
	err := ask(c, showSubject+api+"."+ingest.Token(key), limit, func(data []byte, wrong *operatorError) bool {
		switch {
		case wrong == nil:
			detail = &KeyShown{}
			if json.Unmarshal(data, detail) != nil {
				detail, failed = nil, errors.New("a dispatcher's answer cannot be read: is it another version?")
			}
			return detail != nil
		case wrong.code == codeNoAPI:
			failed = cli.NotFound(fmt.Errorf("there is no api %q", api))
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
			err = cli.Unreachable(fmt.Errorf("nobody owns the partition of %s just now: try again in some seconds", cli.Visible(key)))
		}
	}
	return detail, err
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// refusedConfig is a version that a follower cannot put in force, and why.
type refusedConfig struct {
	version uint64
	why     string
}

// followState is what one replica says of the configuration.
type followState struct {
	Instance string `json:"instance"`
	Seen     uint64 `json:"seen"`          // the newest version that it has looked at
	Version  uint64 `json:"version"`       // in force there
	Why      string `json:"why,omitempty"` // the newest is not in force
}

// state is safe to ask for from any goroutine.
func (f *follower) state(instance string) followState {
	s := followState{Instance: instance, Seen: f.seen.Load(), Version: f.version.Load()}
	if r := f.refused.Load(); r != nil && r.version == s.Seen {
		s.Why = r.why
	}
	return s
}

// awaitFollowed returns when every replica that answers follows a version or a later one, and fails when one does not.
func (c *connection) awaitFollowed(cmd *cobra.Command, version uint64) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), wordTimeout)
	defer cancel()
	talk := cmd.ErrOrStderr()
	for {
		follow, behind, cannot := 0, "", []string(nil)
		err := c.ask(configSubject, 1, func(data []byte, wrong *operatorError) bool {
			var s followState
			switch {
			case wrong != nil || json.Unmarshal(data, &s) != nil:
			case s.Seen < version:
				behind = s.Instance
			case s.Version < version:
				cannot = append(cannot, visible(s.Instance)+" ("+visible(s.Why)+")")
			default:
				follow++
			}
			return false
		})
		switch {
		case errors.Is(err, errNobody):
			_, _ = fmt.Fprintf(talk, "weir: no dispatching weir runs: version %d is in force from its next start on\n", version)
			return nil
		case errors.Is(err, errSilent):
			return fmt.Errorf("version %d is stored, but a dispatching weir did not answer within %s: it may go on as before", version, firstAnswer)
		case err != nil:
			return err
		case len(cannot) > 0:
			return fmt.Errorf("version %d is stored, but %s cannot follow it and %s on as before: %s; mend that there, or take it back with `weir config rollback`",
				version, count(len(cannot), "replica"), verb(len(cannot), "goes", "go"), strings.Join(cannot, "; "))
		case behind == "":
			_, _ = fmt.Fprintf(talk, "weir: applied as version %d: %s %s it\n", version, count(follow, "dispatching replica"), verb(follow, "follows", "follow"))
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("version %d is stored, but instance %s has not put it in force within %s: look at its log", version, visible(behind), wordTimeout)
		}
		pause(ctx, wordRetry)
	}
}

// verb is the form that goes with a number.
func verb(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

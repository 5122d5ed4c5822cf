package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
)

// refusedConfig is a version that a follower cannot put in force, and why.
type refusedConfig struct {
	version uint64
	why     string
}

// followState is what one replica says of the configuration.
type followState struct {
	Instance string `json:"instance"`
	Session  string `json:"session,omitempty"` // its lease
	Seen     uint64 `json:"seen"`              // the newest version that it has looked at
	Version  uint64 `json:"version"`           // in force there
	Why      string `json:"why,omitempty"`     // the newest is not in force
}

// state is safe to ask for from any goroutine.
func (f *follower) state(instance, session string) followState {
	s := followState{Instance: instance, Session: session, Seen: f.seen.Load(), Version: f.version.Load()}
	if r := f.refused.Load(); r != nil && r.version == s.Seen {
		s.Why = r.why
	}
	return s
}

// errCannotFollow says that a replica has looked at a version and cannot be run by it.
var errCannotFollow = errors.New("cannot be followed")

// awaitFollowed returns when every replica that may call follows a version or a later one, and fails when one does not.
func awaitFollowed(c *connect.Connection, cmd *cobra.Command, version uint64) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), wordTimeout)
	defer cancel()
	talk := cmd.ErrOrStderr()
	m, err := newMuster(ctx, c)
	if err != nil {
		return err
	}
	for {
		follow, behind, cannot := 0, "", []string(nil)
		err := m.ask(cmd.Context(), configSubject, func(data []byte) (who replica) {
			var s followState
			switch {
			case json.Unmarshal(data, &s) != nil:
			case s.Seen < version:
				behind = s.Instance
			case s.Version < version:
				cannot = append(cannot, cli.Visible(s.Instance)+" ("+cli.Visible(s.Why)+")")
			default:
				follow++
			}
			return replica{s.Instance, s.Session}
		})
		switch {
		case errors.Is(err, errSilent):
			return fmt.Errorf("version %d is stored, but a dispatching weir did not answer within %s: it may go on as before", version, firstAnswer)
		case err != nil:
			return err
		case len(cannot) > 0:
			return fmt.Errorf("version %d %w: %s %s on as before: %s",
				version, errCannotFollow, cli.Count(len(cannot), "replica"), cli.Verb(len(cannot), "goes", "go"), strings.Join(cannot, "; "))
		case behind == "" && m.complete():
			if follow == 0 {
				_, _ = fmt.Fprintf(talk, "weir: applied as version %d: %s\n", version, m.nobody())
				return nil
			}
			_, _ = fmt.Fprintf(talk, "weir: applied as version %d: %s %s it%s\n", version, cli.Count(follow, "dispatching replica"), cli.Verb(follow, "follows", "follow"), m.overdue())
			return nil
		case ctx.Err() != nil && behind == "":
			return fmt.Errorf("version %d is stored, but %s: it may go on as before", version, m.missing())
		case ctx.Err() != nil:
			return fmt.Errorf("version %d is stored, but instance %s has not put it in force within %s: look at its log", version, cli.Visible(behind), wordTimeout)
		}
		stream.Sleep(ctx, wordRetry)
	}
}

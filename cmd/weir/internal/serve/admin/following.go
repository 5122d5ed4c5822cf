package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
)

// ConfigState is what one replica reports about the configuration.
type ConfigState struct {
	Instance string `json:"instance"`
	Session  string `json:"session,omitempty"` // the session of its lease
	Seen     uint64 `json:"seen"`              // the newest version that the replica has considered
	Version  uint64 `json:"version"`           // the version in force on this replica
	Why      string `json:"why,omitempty"`     // why the newest version is not in force
	// Shares has the share by which the replica counts the account that the question names, in percent. The account is
	// missing if the replica counts no call of it, for example because no api of it is configured. Its use is then
	// unknown.
	Shares map[string]int64 `json:"shares,omitempty"`
	// Busy says why calls of this site may exceed the account's share in a window that still sees calls.
	Busy map[string]string `json:"busy,omitempty"`
}

// ErrCannotFollow reports that a replica has considered a version and cannot run by it.
var ErrCannotFollow = errors.New("cannot be followed")

// AwaitFollowed blocks until every replica that may make calls follows this version or a later one. It fails if a
// replica cannot follow the version, or after commandTimeout.
func AwaitFollowed(ctx context.Context, c *connect.Connection, talk io.Writer, version uint64) error {
	command := ctx
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	m, err := awaitReplicas(ctx, c)
	if err != nil {
		return err
	}
	for {
		follow, behind, cannot := 0, "", []string(nil)
		err := m.ask(command, configSubject, func(data []byte) (who replica) {
			var s ConfigState
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
				version, ErrCannotFollow, cli.Count(len(cannot), "replica"), cli.Verb(len(cannot), "goes", "go"), strings.Join(cannot, "; "))
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
			return fmt.Errorf("version %d is stored, but instance %s has not put it in force within %s: look at its log", version, cli.Visible(behind), commandTimeout)
		}
		stream.Sleep(ctx, commandRetry)
	}
}

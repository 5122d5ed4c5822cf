package timeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/dispatcher/ledger"
)

// Bounds of looking for what a job had waited for.
const (
	shortWait = 10 * time.Millisecond // below it nobody asks
	mostAhead = 1000                  // calls that are counted
	clocks    = 5 * time.Second       // by which the clocks of the streams' leaders and of who called may differ
)

// waited says of each job's first call how long the job had waited for it, and how many calls of its key were made meanwhile: by these a
// key's own rate and backlog are told from a hold, a pause or a limit that keys share. It reads the key's records of that time.
func (s *search) waited(ctx context.Context) error {
	for _, j := range s.t.Jobs {
		call, accepted := j.firstCall(), j.firstAccepted()
		if call == nil || accepted.IsZero() || call.At.Sub(accepted) < shortWait {
			continue
		}
		ahead := 0
		f := ledger.Filter{API: j.API, Key: j.Key, Since: accepted.Add(-clocks)}
		_, err := ledger.Read(ctx, s.c.JetStream, f, func(c *ledger.Record, _, _ uint64) error {
			if c.Job != s.Job && c.Started.After(accepted) && c.Started.Before(call.At) {
				ahead++
			}
			if ahead == mostAhead || c.Started.After(call.At.Add(clocks)) {
				return stream.ErrEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, stream.ErrEnough) {
			return err
		}
		call.WaitedMS, call.Ahead = call.At.Sub(accepted).Milliseconds(), ahead
		call.Text += "; it had waited " + cli.Brief(call.At.Sub(accepted)) + ", " + aheadText(ahead)
	}
	return nil
}

// firstCall is the first call of a job that is known; nil where that is not the job's first.
func (j *Job) firstCall() *Step {
	for i := range j.Steps {
		if s := &j.Steps[i]; s.What == Called && s.Call == 1 {
			return s
		}
	}
	return nil
}

func aheadText(ahead int) string {
	switch ahead {
	case 0:
		return "and no other call of its key was made meanwhile"
	case mostAhead:
		return fmt.Sprintf("while %d calls and more of its key were made", ahead)
	}
	return "while " + cli.Count(ahead, "other call") + " of its key " + map[bool]string{true: "was", false: "were"}[ahead == 1] + " made"
}

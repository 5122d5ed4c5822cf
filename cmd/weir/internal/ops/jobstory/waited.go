package jobstory

import (
	"context"
	"fmt"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// Bounds of the search for what a job had waited for.
const (
	shortWait  = 10 * time.Millisecond // shorter waits are not explained
	mostAhead  = 200                   // calls that are counted
	mostBeside = 20                    // records behind the call's own that are read, for calls that began before it and ended later
	skew       = 50 * time.Millisecond // by which a record may be stored before its job was, by two clocks
	clocks     = 5 * time.Second       // by which the clocks of the streams' leaders and of the calling replica may differ
)

// waited adds to the first call of a job how long the job had waited for it, and how many calls of its key began
// meanwhile; for a redriven job, to each first call. These tell a key's own rate and backlog from a hold, a pause or a
// shared limit. To every call it adds what held it longest, if the ledger says so.
func (s *search) waited(ctx context.Context) error {
	for _, j := range s.t.Jobs {
		for i := range j.Steps {
			call := &j.Steps[i]
			if call.What != Called {
				continue
			}
			took, why := call.held()
			if wait := call.At.Sub(call.accepted); call.Call == 1 && !call.accepted.IsZero() && wait >= shortWait {
				ahead, err := s.ahead(ctx, j, call)
				if err != nil {
					return err
				}
				call.WaitedMS, call.Ahead = wait.Milliseconds(), ahead
				call.Text += "; it had waited " + cli.Brief(wait) + ", "
				if why != "" {
					call.Text += took + " of it " + why + ", "
				}
				call.Text += aheadText(ahead)
			} else if why != "" {
				call.Text += "; it had waited " + took + " " + why
			}
		}
	}
	return nil
}

// held returns what kept a job from a call for longest, and how long; why is "" if nothing is known to have.
func (s *Step) held() (took, why string) {
	return cli.Brief(time.Duration(s.HeldMS) * time.Millisecond), schedule.Holdup{For: s.HeldFor, Limit: s.HeldLimit}.String()
}

// ahead counts the calls of other jobs of a key that began between a job's acceptance and its call. It reads the key's
// records of that time.
func (s *search) ahead(ctx context.Context, j *Job, call *Step) (n int, err error) {
	after := 0 // records behind that of the call
	from, to := call.accepted.Add(-skew), call.At.Add(clocks)
	err = ledger.RecordsNear(ctx, s.c.JetStream, ledger.Filter{API: j.API, Key: j.Key, Since: from}, to, 2*mostAhead, func(c *ledger.Record) error {
		if c.Job != s.Job && c.Started.After(call.accepted) && c.Started.Before(call.At) {
			n++
		}
		if after > 0 || c.Job == s.Job && c.Call == call.Call {
			after++
		}
		if n == mostAhead || after > mostBeside {
			return stream.ErrEnough
		}
		return nil
	})
	return n, err
}

func aheadText(ahead int) string {
	switch ahead {
	case 0:
		return "and no other call of its key was made meanwhile"
	case 1:
		return "and 1 other call of its key was made meanwhile"
	case mostAhead:
		return fmt.Sprintf("and %d calls and more of its key were made meanwhile", ahead)
	}
	return fmt.Sprintf("and %d other calls of its key were made meanwhile", ahead)
}

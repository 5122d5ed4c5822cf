package jobstory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
)

// shortWait is the shortest wait that is explained.
const shortWait = 10 * time.Millisecond

// clocks is by how much the clocks of stream leaders and of the calling replica may differ.
const clocks = 5 * time.Second

// waited adds to each first call of a job how long the job had waited, and how many calls of its key began meanwhile. A
// redriven job has several first calls. The two numbers tell whether the key's own rate and backlog caused the wait, or
// a hold, a pause or a shared limit. To every call waited adds what held the job longest, if the ledger says so.
func (s *search) waited(ctx context.Context) error {
	var waits []jobindex.Wait
	var calls []*Step
	for _, j := range s.t.Jobs {
		for i := range j.Steps {
			call := &j.Steps[i]
			if call.What != Called {
				continue
			}
			if wait := call.At.Sub(call.accepted); call.Call == 1 && !call.accepted.IsZero() && wait >= shortWait {
				waits = append(waits, jobindex.Wait{API: j.API, Key: j.Key, Job: s.Job, Seq: call.Seq, Accepted: call.accepted, Started: call.At})
				calls = append(calls, call)
			} else if took, why := call.held(); why != "" {
				call.Text += "; it had waited " + took + " " + why
			}
		}
	}
	all, err := s.ahead(ctx, waits)
	if err != nil {
		return err
	}
	for i, call := range calls {
		wait := call.At.Sub(call.accepted)
		call.WaitedMS, call.Ahead = wait.Milliseconds(), all[i]
		call.Text += "; it had waited " + cli.Brief(wait) + ", "
		if took, why := call.held(); why != "" {
			call.Text += took + " of it " + why + ", "
		}
		call.Text += aheadText(call.Ahead)
	}
	return nil
}

// held returns how long the job was held before this call, and by what. why is "" if that is unknown.
func (s *Step) held() (took, why string) {
	return cli.Brief(time.Duration(s.HeldMS) * time.Millisecond), schedule.Holdup{For: s.HeldFor, Limit: s.HeldLimit}.String()
}

// ahead counts, for each wait, the calls of other jobs of the same key that began during that wait. It asks the index
// of ended jobs. If the index does not go back far enough, ahead reads the key's records of that time.
func (s *search) ahead(ctx context.Context, waits []jobindex.Wait) ([]int, error) {
	all := slices.Repeat([]int{jobindex.NotKnown}, len(waits))
	if s.isIndexed {
		all = admin.AheadOf(ctx, s.c, waits)
	}
	for i := range waits {
		if all[i] != jobindex.NotKnown {
			continue
		}
		w := &waits[i]
		var found jobindex.Ahead
		from, to := w.Stored()
		f := ledger.Filter{API: w.API, Key: w.Key, Since: from}
		err := ledger.RecordsNear(ctx, s.c.JetStream, f, to, jobindex.MostRead, func(c *ledger.Record) error {
			if !jobindex.IsCall(c) && c.At != w.Seq {
				return nil
			}
			if !found.Add(c.At == w.Seq, c.Job != w.Job && w.Began(c.Started)) {
				return stream.ErrEnough
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		all[i] = found.N
	}
	return all, nil
}

func aheadText(ahead int) string {
	switch ahead {
	case 0:
		return "and no other call of its key was made meanwhile"
	case 1:
		return "and 1 other call of its key was made meanwhile"
	case jobindex.MostAhead:
		return fmt.Sprintf("and %d calls and more of its key were made meanwhile", ahead)
	}
	return fmt.Sprintf("and %d other calls of its key were made meanwhile", ahead)
}

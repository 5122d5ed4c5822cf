package control

import (
	"errors"
	"fmt"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/deadletter"

	"github.com/nats-io/nats.go/micro"
)

// Redrives are tasks stored in NATS (deadletter.Tasks). A command or an HTTP client plans a task, starts it and follows
// its progress. A dispatching replica works it.

// RedriveTask describes a redrive for --json and /api/v1.
type RedriveTask struct {
	Name      string               `json:"name"`
	State     deadletter.TaskState `json:"state"`
	By        string               `json:"by"`
	Created   time.Time            `json:"created"`
	Selection string               `json:"selection"` // as given; empty: all
	Rate      string               `json:"rate"`
	Letters   int                  `json:"letters"` // to be submitted
	Total     int                  `json:"total"`   // with those only to be deleted, and those to be left alone
	Cost      string               `json:"cost"`    // of Letters, by the api's price
	Done      int                  `json:"done"`    // of Total
	deadletter.Tally
	Gone      int        `json:"gone,omitempty"` // once done: ended by others, too old, or unrecorded at a crash
	Worker    string     `json:"worker,omitempty"`
	Begun     *time.Time `json:"begun,omitempty"`
	Updated   *time.Time `json:"updated,omitempty"`
	Ended     *time.Time `json:"ended,omitempty"`
	LeftMS    int64      `json:"left_ms,omitempty"` // until all are submitted, at its rate
	Why       string     `json:"why,omitempty"`     // why it waits or has failed
	StoppedBy string     `json:"stopped_by,omitempty"`
	Edited    bool       `json:"edited,omitempty"`
}

// TellTask describes a task.
func TellTask(t *deadletter.Task) RedriveTask {
	p := &t.Progress
	told := RedriveTask{
		Name: t.Name, State: t.State(), By: t.By, Created: t.Created, Selection: t.Said, Rate: config.FormatRate(t.Rate()), Letters: t.Letters,
		Total: t.Total, Cost: config.Money(t.Cost).String(), Done: p.Tally.Done() + t.Gone(), Tally: p.Tally, Gone: t.Gone(), Worker: p.Worker,
		StoppedBy: t.StoppedBy, Edited: t.Edit != nil,
	}
	if told.Skipped == nil {
		told.Skipped = map[deadletter.Skip]int{}
	}
	for _, at := range []struct {
		from time.Time
		to   **time.Time
	}{{p.Begun, &told.Begun}, {p.Updated, &told.Updated}, {p.Ended, &told.Ended}} {
		if !at.from.IsZero() {
			*at.to = new(at.from.UTC())
		}
	}
	if told.State == deadletter.TaskWaiting || told.State == deadletter.TaskFailed {
		told.Why = p.Why
	}
	if left := t.Total - told.Done; left > 0 && !told.State.Ended() {
		told.LeftMS = publishing(left, t.Rate()).Milliseconds()
	}
	return told
}

// publishing returns how long a rate needs for this many letters.
func publishing(letters int, rate bucket.Rate) time.Duration {
	return time.Duration(float64(letters) * float64(rate.Per) / float64(max(1, rate.Count)))
}

// RedrivePlan describes what a redrive would do, for --json and /api/v1.
type RedrivePlan struct {
	DryRun      bool                    `json:"dry_run"`
	Letters     int                     `json:"letters"`
	Keys        int                     `json:"keys"`
	Oldest      *time.Time              `json:"oldest,omitempty"`
	Cost        string                  `json:"cost"`
	BilledOnce  int                     `json:"billed_before"`
	BilledCost  string                  `json:"billed_before_cost"`
	MaybeBilled int                     `json:"maybe_billed"`
	DurationMS  int64                   `json:"duration_ms"`
	Rate        string                  `json:"rate"`
	Slowest     string                  `json:"slowest,omitempty"`
	NoRoom      int64                   `json:"no_room_now"` // if all came at once
	Overflow    int64                   `json:"overflow"`    // at the rate
	RoomyRate   string                  `json:"roomy_rate,omitempty"`
	Settled     int                     `json:"settled"`
	Skipped     map[deadletter.Skip]int `json:"skipped"`
}

// TellPlan describes a plan. rate is the text as it was given.
func TellPlan(p *deadletter.Plan, rate string) RedrivePlan {
	told := RedrivePlan{
		DryRun: true, Letters: p.Letters, Keys: p.Keys, Cost: config.Money(p.Cost).String(), BilledOnce: p.BilledBefore,
		BilledCost: config.Money(p.BilledBeforeCost).String(), MaybeBilled: p.MaybeBilled, DurationMS: p.Duration().Milliseconds(),
		Rate: rate, Slowest: p.Slowest, NoRoom: p.NoRoom, Overflow: p.Overflow, Settled: p.Settled, Skipped: p.Skipped,
	}
	if p.Roomy != nil {
		told.RoomyRate = config.FormatRate(*p.Roomy)
	}
	if !p.Oldest.IsZero() {
		told.Oldest = new(p.Oldest.UTC())
	}
	return told
}

// RedriveOrder returns the order for a plan's task.
func RedriveOrder(p *deadletter.Plan, rate bucket.Rate) deadletter.TaskOrder {
	total := p.Letters + p.Settled
	for _, n := range p.Skipped {
		total += n
	}
	return deadletter.TaskOrder{RateCount: rate.Count, RatePer: int64(rate.Per), Letters: p.Letters, Total: total, Cost: p.Cost}
}

// ExplainTask gives an error about a task its exit code.
func ExplainTask(name string, err error) error {
	switch {
	case errors.Is(err, deadletter.ErrNoTask):
		return cli.NotFound(fmt.Errorf("there is no redrive %s: `weir dead tasks` lists them", cli.Visible(name)))
	case errors.Is(err, deadletter.ErrTaskDone):
		return cli.Refused(fmt.Errorf("the redrive %s is done", name))
	case errors.Is(err, deadletter.ErrTaskKnown):
		return cli.Refused(fmt.Errorf("there is a redrive %s already", name))
	case errors.Is(err, deadletter.ErrManyTasks):
		return cli.Refused(err)
	}
	return err
}

// redrivesSubject is the subject on which replicas that work redrives answer.
const redrivesSubject = "weir.operator.redrives"

// redrivesWait is short, because replicas that work no redrives do not answer.
var redrivesWait = answerWaits{2 * time.Second, 100 * time.Millisecond}

// RedrivesWorked reports whether a replica works redrives. Such a replica dispatches, and its NATS user may publish
// redriven jobs.
func RedrivesWorked(c *connect.Connection) (worked bool) {
	_ = askFor(c, redrivesSubject, nil, redrivesWait, func(_ []byte, wrong *operatorError) bool {
		worked = wrong == nil
		return worked
	}) // no replica means no
	return worked
}

// redrivesAnswer is a replica's statement that it works redrives.
type redrivesAnswer struct {
	Instance string `json:"instance"`
}

// redrives answers that this replica works redrives.
func (o operator) redrives(req micro.Request) {
	_ = req.Respond(marshal(redrivesAnswer{o.Instance})) // on an error the asking process has gone
}

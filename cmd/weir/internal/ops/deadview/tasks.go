package deadview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/deadletter"
)

// A redrive is a task that is stored in NATS (deadletter.Tasks). A command or an HTTP client plans the task, starts it
// and follows its progress. A dispatching replica carries it out.

// Tasks gives access to the redrives of a server. Its errors have the exit codes of commands.
type Tasks struct {
	tasks *deadletter.Tasks
	c     *connect.Connection
}

// OpenTasks opens the redrives.
func OpenTasks(ctx context.Context, c *connect.Connection) (*Tasks, error) {
	kv, err := c.Control(ctx)
	if err != nil {
		return nil, err
	}
	return &Tasks{deadletter.NewTasks(kv), c}, nil
}

// List returns all redrives, the oldest first.
func (t *Tasks) List(ctx context.Context) ([]deadletter.Task, error) {
	all, err := t.tasks.List(ctx)
	return all, t.c.Explain(err)
}

// Get returns one redrive.
func (t *Tasks) Get(ctx context.Context, name string) (deadletter.Task, error) {
	task, err := t.tasks.Get(ctx, name)
	return task, t.explain(name, err)
}

// Stop suspends a redrive until it is resumed.
func (t *Tasks) Stop(ctx context.Context, name, by string) (deadletter.Task, error) {
	task, err := t.tasks.Stop(ctx, name, by)
	return task, t.explain(name, err)
}

// Resume continues a redrive that was stopped or has failed.
func (t *Tasks) Resume(ctx context.Context, name string) (deadletter.Task, error) {
	task, err := t.tasks.Resume(ctx, name)
	return task, t.explain(name, err)
}

// Watch calls take with all redrives, at once and after every change, until take returns false or ctx ends.
func (t *Tasks) Watch(ctx context.Context, take func(all []deadletter.Task) (more bool)) error {
	return t.tasks.Watch(ctx, take)
}

// RedriveTask describes a redrive for --json and /api/v1.
type RedriveTask struct {
	Name      string               `json:"name"`
	State     deadletter.TaskState `json:"state"`
	By        string               `json:"by"`
	Created   time.Time            `json:"created"`
	Selection string               `json:"selection"` // as given; empty: all
	Rate      string               `json:"rate"`
	Priority  string               `json:"priority"` // of the jobs
	Letters   int                  `json:"letters"`  // to be submitted
	Total     int                  `json:"total"`    // with those only to be deleted, and those to be left alone
	Cost      string               `json:"cost"`     // of Letters, by the api's price
	Done      int                  `json:"done"`     // of Total
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

// TellTask returns a task in its JSON form.
func TellTask(t *deadletter.Task) RedriveTask {
	p := &t.Progress
	told := RedriveTask{
		Name: t.Name, State: t.State(), By: t.By, Created: t.Created, Selection: t.Said, Rate: grammar.FormatRate(t.Rate()),
		Priority: cmp.Or(t.Priority, deadletter.RedrivePriority.String()), Letters: t.Letters,
		Total: t.Total, Cost: grammar.Money(t.Cost).String(), Done: p.Tally.Done() + t.Gone(), Tally: p.Tally, Gone: t.Gone(), Worker: p.Worker,
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

// publishing returns how long it takes to submit this many letters at a rate.
func publishing(letters int, rate bucket.Rate) time.Duration {
	return time.Duration(float64(letters) * float64(rate.Per) / float64(max(1, rate.Count)))
}

// explain adds the exit code to an error about a task.
func (t *Tasks) explain(name string, err error) error {
	switch {
	case errors.Is(err, deadletter.ErrNoTask):
		return cli.NotFound(fmt.Errorf("there is no redrive %s: `weir dead tasks` lists them", cli.Visible(name)))
	case errors.Is(err, deadletter.ErrTaskDone):
		return cli.Refused(fmt.Errorf("the redrive %s is done", name))
	case errors.Is(err, deadletter.ErrTaskKnown):
		return cli.Refused(fmt.Errorf("there is a redrive %s already", name))
	case errors.Is(err, deadletter.ErrManyTasks), errors.Is(err, deadletter.ErrLongTask):
		return cli.Refused(err)
	case errors.Is(err, deadletter.ErrTaskName):
		return cli.Usage(err)
	}
	return t.c.Explain(err)
}

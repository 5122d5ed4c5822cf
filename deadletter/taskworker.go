package deadletter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/lease"
	"weir/bucket/stream"
)

// TaskWorkerOptions configure a TaskWorker. All are required.
type TaskWorkerOptions struct {
	Conn      *nats.Conn
	JetStream jetstream.JetStream
	Control   jetstream.KeyValue
	Terms     func(api string) (Terms, bool)
	Calls     CallsReader
	Instance  string
	Log       *slog.Logger
}

// TaskWorker works on the tasks, one at a time, while it holds the right to end letters. Every replica that dispatches
// has one, and the right decides which of them works.
type TaskWorker struct {
	TaskWorkerOptions
	tasks *Tasks

	mu      sync.Mutex // guards what follows
	all     []Task     // as last read, oldest first
	changed chan struct{}
}

// The intervals of a TaskWorker.
const (
	noteEvery   = time.Second / 4  // between two writes of a task's progress
	rightRetry  = 2 * time.Second  // before the worker asks again for a right that another process holds
	firstRetry  = time.Second      // before a task that met an obstacle is tried again; doubles each time
	longestWait = 30 * time.Second // the longest such pause
	watchRest   = 2 * time.Second  // before a failed watch starts again
	noteWait    = 5 * time.Second  // for storing the end of a task's run
)

// NewTaskWorker returns a TaskWorker. Call Run to start it.
func NewTaskWorker(o TaskWorkerOptions) *TaskWorker {
	if o.Conn == nil || o.JetStream == nil || o.Control == nil || o.Terms == nil || o.Calls == nil || o.Log == nil {
		panic("deadletter: NewTaskWorker without all that it needs")
	}
	o.Log = o.Log.With("component", "redrives")
	return &TaskWorker{TaskWorkerOptions: o, tasks: NewTasks(o.Control), changed: make(chan struct{}, 1)}
}

// Run works on tasks until ctx ends. It then stores the current task's progress, so that another replica can continue
// the task.
func (w *TaskWorker) Run(ctx context.Context) error {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() { w.follow(ctx) })
	for ctx.Err() == nil {
		if w.next() == nil {
			select {
			case <-w.changed:
			case <-ctx.Done():
			}
			continue
		}
		if err := w.withRight(ctx); err != nil && ctx.Err() == nil {
			var held *lease.HeldError
			if !errors.As(err, &held) {
				w.Log.Warn("redrives wait", "err", err)
			}
			stream.Sleep(ctx, rightRetry)
		}
	}
	return nil
}

// follow keeps the list of tasks current, until ctx ends.
func (w *TaskWorker) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.tasks.Watch(ctx, func(all []Task) bool {
			w.mu.Lock()
			w.all = all
			w.mu.Unlock()
			select {
			case w.changed <- struct{}{}:
			default: // signalled already
			}
			return true
		})
		if ctx.Err() == nil {
			w.Log.Warn("cannot watch the redrives; trying again", "err", err)
		}
		stream.Sleep(ctx, watchRest)
	}
}

// next returns the oldest task that has work left, or nil if there is none.
func (w *TaskWorker) next() *Task {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		if !w.all[i].State().Ended() {
			return new(w.all[i])
		}
	}
	return nil
}

// stopped reports whether a task's run must end: an operator has stopped the task, even if it was resumed since, or its
// entries were deleted.
func (w *TaskWorker) stopped(t *Task) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		if o := &w.all[i]; o.Name == t.Name {
			return o.Stopped || o.Run != t.Run
		}
	}
	return true // its entries were deleted
}

// withRight takes the right to end letters and works on tasks until there are none. It fails if another process holds
// the right.
func (w *TaskWorker) withRight(ctx context.Context) error {
	first := w.next()
	if first == nil {
		return nil
	}
	right, err := TakeRight(ctx, w.Conn, w.Control, fmt.Sprintf("the redrive %s (begun by %s, worked by %s)", first.Name, first.By, w.Instance))
	if err != nil {
		return err
	}
	defer right.Give()
	for rest := firstRetry; ctx.Err() == nil; {
		fresh := w.next() // another replica may have worked on it until now
		if fresh == nil {
			return nil
		}
		task, err := w.tasks.Get(ctx, fresh.Name)
		if err != nil {
			return err
		}
		if task.State().Ended() {
			w.heard(&task)
			continue
		}
		before := task.Progress.Next
		err = w.work(ctx, right, &task)
		w.heard(&task)
		switch {
		case err == nil, errors.Is(err, ErrTerms):
			rest = firstRetry
			continue
		case !right.Valid(), errors.Is(err, stream.ErrStale):
			return ErrRightLost
		case task.Progress.Next > before:
			rest = firstRetry
		}
		w.wait(ctx, rest, &task)
		rest = min(2*rest, longestWait)
	}
	return nil
}

// wait pauses before a task is tried again, or until an operator stops the task.
func (w *TaskWorker) wait(ctx context.Context, rest time.Duration, t *Task) {
	ctx, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	for ctx.Err() == nil && !w.stopped(t) {
		select {
		case <-w.changed:
		case <-ctx.Done():
		}
	}
}

// heard updates the list with the present state of a task, because the watch reports it only later.
func (w *TaskWorker) heard(t *Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.all {
		if o := &w.all[i]; o.Name == t.Name {
			if t.orderRevision >= o.orderRevision {
				o.TaskOrder, o.orderRevision = t.TaskOrder, t.orderRevision
			}
			if t.progressRevision >= o.progressRevision {
				o.Progress, o.progressRevision = t.Progress, t.progressRevision
			}
		}
	}
}

var errTaskStopped = errors.New("an operator has stopped it")

// work redrives the letters of a task until all are done or an operator stops it. It returns an obstacle as an error.
func (w *TaskWorker) work(ctx context.Context, right *Right, t *Task) error {
	resumed := !t.Progress.Begun.IsZero()
	w.begin(t)
	if err := w.tasks.note(ctx, t); err != nil {
		return err
	}
	what := "a redrive begins"
	if resumed {
		what = "a redrive resumes"
	}
	w.Log.Info(what, "task", t.Name, "by", t.By, "letters", t.Total, "next", t.Progress.Next)
	running, cancel := context.WithCancelCause(ctx)
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { w.watchStop(t, stop, cancel) })
	tally, err := w.redrive(running, right, t, resumed)
	close(stop)
	watching.Wait()
	cancel(nil)
	t.Progress.Tally = tally.clone()
	return w.end(ctx, t, err, errors.Is(context.Cause(running), errTaskStopped))
}

// watchStop ends a task's run when an operator stops it.
func (w *TaskWorker) watchStop(t *Task, done <-chan struct{}, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(stopLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if w.stopped(t) {
				cancel(errTaskStopped)
				return
			}
		case <-done:
			return
		}
	}
}

// stopLook is how often a running task checks whether it must stop.
const stopLook = 100 * time.Millisecond

// begin marks the task as running on this replica.
func (w *TaskWorker) begin(t *Task) {
	now := time.Now().UTC().Truncate(time.Millisecond)
	p := &t.Progress
	if p.Begun.IsZero() {
		p.Begun = now
	}
	if p.State == TaskRunning { // the replica that worked on it died before it stored when it published its last letter
		p.Paced = now.Add(t.Rate().Per / time.Duration(t.Rate().Count))
	}
	p.State, p.Run, p.Worker, p.Ended, p.Why = TaskRunning, t.Run, w.Instance, time.Time{}, ""
	p.Next = max(p.Next, t.First)
}

// redrive runs the redrive of a task from its progress on.
func (w *TaskWorker) redrive(ctx context.Context, right *Right, t *Task, resumed bool) (*Tally, error) {
	b, err := OpenBrowser(ctx, w.JetStream)
	if err == nil {
		err = w.tasks.loadBody(ctx, w.Conn, &t.TaskOrder)
	}
	if err != nil {
		return &t.Progress.Tally, err
	}
	o := t.options(RedriveOptions{
		Conn: w.Conn, Browser: b, Terms: w.Terms, Calls: w.Calls, Before: t.Progress.Tally, Valid: right.Valid, Progress: func(*Tally) {},
	})
	if resumed {
		o.NotBefore = t.Progress.Paced
	}
	noted := time.Now()
	o.Passed = func(ctx context.Context, p Passed) error {
		t.Progress.Next, t.Progress.Paced, t.Progress.Tally = p.Next, p.Paced.UTC(), p.Tally.clone()
		if now := time.Now(); now.Sub(noted) >= noteEvery {
			noted = now
			return w.tasks.note(ctx, t)
		}
		return nil
	}
	r := NewRedrive(b.frozen(&t.TaskOrder, t.Progress.Next), o)
	return r.Run(ctx)
}

// frozen returns the part of a task's scope from a letter on.
func (b *Browser) frozen(o *TaskOrder, next uint64) *Scope {
	s := &Scope{browser: b, filter: o.Filter, seqs: o.Numbers, walk: span{first: o.First, last: o.Last}}
	return s.between(next, maxSeq)
}

// end stores how a task's run ended. It returns err if the task must be tried again.
func (w *TaskWorker) end(ctx context.Context, t *Task, err error, stopped bool) error {
	p, again := &t.Progress, error(nil)
	switch {
	case err == nil:
		p.State, p.Ended = TaskDone, time.Now().UTC().Truncate(time.Millisecond)
	case stopped:
		p.State = TaskStopped
	case ctx.Err() != nil: // the replica stops
		p.State = TaskWaiting
		again = err
	case passing(err):
		p.State, p.Why, again = TaskWaiting, err.Error(), err
	default:
		p.State, p.Ended, p.Why = TaskFailed, time.Now().UTC().Truncate(time.Millisecond), err.Error()
	}
	if p.Ended.IsZero() && !stopped {
		w.Log.Info("a redrive waits", "task", t.Name, "state", p.State, "err", err)
	} else {
		w.Log.Info("a redrive has ended", "task", t.Name, "state", p.State, "redriven", p.Tally.Redriven+p.Tally.Known, "overflowed", p.Tally.Overflowed, "err", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	if again == nil {
		w.tell(ctx, t)
	}
	if noteErr := w.tasks.note(ctx, t); noteErr != nil {
		return errors.Join(again, noteErr)
	}
	if p.State == TaskDone {
		if err := w.tasks.dropBody(ctx, &t.TaskOrder); err != nil {
			w.Log.Warn("the edited body of a redrive could not be deleted", "task", t.Name, "err", err)
		}
	}
	return again
}

// passing reports whether a run that ended with this error may succeed later without an operator.
func passing(err error) bool {
	var own *letterError
	return !errors.As(err, &own) && !errors.Is(err, errBodyGone)
}

// tell publishes the event of a run that has ended, if the run did anything.
func (w *TaskWorker) tell(ctx context.Context, t *Task) {
	did := &t.Progress.Tally
	if did.Redriven+did.Known+did.Overflowed+did.Refused+did.Settled == 0 {
		return
	}
	e := Event{Type: RedrivenEvent, API: t.Filter.API, Key: t.Filter.Key, ID: fmt.Sprintf("task.%s.%d", t.Name, t.Run), Data: OperationData{
		Who: t.By, Selection: t.Said, Letters: did.Redriven + did.Known, Overflowed: did.Overflowed, Refused: did.Refused,
		Settled: did.Settled, Task: t.Name,
	}}
	if err := e.Publish(ctx, w.JetStream); err != nil {
		w.Log.Warn("a redrive has ended, but could not store its event", "task", t.Name, "err", err)
	}
}

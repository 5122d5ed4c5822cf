package deadletter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// Each task has two entries in the control bucket, and a third one for an edited body, which may be as large as a
// message. Processes that watch tasks do not read the third.
const (
	taskPrefix       = "task."
	orderSuffix      = ".order"
	progressSuffix   = ".progress"
	editedBodyPrefix = "edited."
)

// MarkerAge is how long the control bucket keeps the marker of a deleted entry. From the marker, watches learn that a
// task is gone.
const MarkerAge = time.Hour

// The errors of tasks.
var (
	ErrNoTask    = errors.New("there is no such task")
	ErrTaskKnown = errors.New("a task of this name exists already")
	ErrTaskDone  = errors.New("the task is done")
	ErrTaskName  = errors.New("a task's name is made of a-z, 0-9, - and _, and begins with a letter or a digit")
	ErrLongTask  = errors.New("a task cannot hold so many numbers, or so many headers of an edit: choose letters by flags, or fewer at a time")
	ErrManyTasks = fmt.Errorf("there are %d tasks that are neither done nor failed: finish some first", maxTasks)
)

// Tasks gives access to the tasks in NATS. It is safe for concurrent use.
type Tasks struct{ kv jetstream.KeyValue }

// NewTasks returns the tasks in a control bucket.
func NewTasks(control jetstream.KeyValue) *Tasks { return &Tasks{control} }

// Start stores and returns a task for a scope's letters. A replica will work on it. If the order has no name, Start
// makes one. It fails with ErrTaskKnown if a task with that name exists.
func (t *Tasks) Start(ctx context.Context, scope *Scope, o TaskOrder) (Task, error) {
	o.Created = time.Now().UTC().Truncate(time.Millisecond)
	if o.Name == "" {
		o.Name = newTaskName(o.Created)
	}
	if err := CheckTaskName(o.Name); err != nil {
		return Task{}, err
	}
	o.Filter, o.Numbers, o.First, o.Last = scope.filter, scope.seqs, scope.walk.first, scope.walk.last
	if o.Edit != nil && o.Edit.SetBody {
		o.EditedBody = editedBodyPrefix + strconv.FormatUint(rand.Uint64(), 36)
	}
	data := marshalTask(o)
	if len(data) > maxTaskOrder {
		return Task{}, ErrLongTask
	}
	if err := t.prune(ctx); err != nil {
		return Task{}, err
	}
	if o.EditedBody != "" {
		if _, err := t.kv.Create(ctx, o.EditedBody, o.Edit.Body); err != nil {
			return Task{}, fmt.Errorf("task %s: %w", o.Name, err)
		}
	}
	revision, err := t.kv.Create(ctx, taskPrefix+o.Name+orderSuffix, data)
	if err == nil {
		return Task{TaskOrder: o, orderRevision: revision}, nil
	}
	if errors.Is(err, jetstream.ErrKeyExists) {
		err = ErrTaskKnown
	}
	return Task{}, errors.Join(fmt.Errorf("task %s: %w", o.Name, err), t.dropBody(context.WithoutCancel(ctx), &o))
}

// errBodyGone reports that a task cannot continue because its edited body was deleted.
var errBodyGone = errors.New("the edited body is gone: edit the letter again")

// loadBody reads the body of a task's edit. It asks the stream's leader, because a lagging replica could lack a body
// that another process has just stored.
func (t *Tasks) loadBody(ctx context.Context, nc *nats.Conn, o *TaskOrder) error {
	if o.EditedBody == "" {
		return nil
	}
	m, err := stream.NewestEntry(ctx, nc, t.kv.Bucket(), o.EditedBody)
	switch {
	case err != nil:
		return fmt.Errorf("the edited body: %w", err)
	case m == nil, m.Deleted():
		return errBodyGone
	}
	o.Edit.Body = m.Data
	return nil
}

// dropBody deletes the body of a task's edit.
func (t *Tasks) dropBody(ctx context.Context, o *TaskOrder) error {
	if o.EditedBody == "" {
		return nil
	}
	return t.kv.Purge(ctx, o.EditedBody, jetstream.PurgeTTL(MarkerAge))
}

// prune makes room for one more task. It deletes the oldest tasks that are done or failed.
func (t *Tasks) prune(ctx context.Context) error {
	all, err := t.List(ctx)
	if err != nil {
		return err
	}
	left := len(all)
	for i := range all {
		if left < maxTasks {
			return nil
		}
		if state := all[i].State(); state != TaskDone && state != TaskFailed {
			continue
		}
		for _, suffix := range []string{orderSuffix, progressSuffix} {
			if err := t.kv.Purge(ctx, taskPrefix+all[i].Name+suffix, jetstream.PurgeTTL(MarkerAge)); err != nil {
				return fmt.Errorf("forget task %s: %w", all[i].Name, err)
			}
		}
		if err := t.dropBody(ctx, &all[i].TaskOrder); err != nil {
			return fmt.Errorf("forget task %s: %w", all[i].Name, err)
		}
		left--
	}
	if left >= maxTasks {
		return ErrManyTasks
	}
	return nil
}

// List returns all tasks, oldest first.
func (t *Tasks) List(ctx context.Context) ([]Task, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var found []Task
	err := t.Watch(ctx, func(all []Task) bool { found = all; return false })
	return found, err
}

// Get reads one task. It fails with ErrNoTask if there is none.
func (t *Tasks) Get(ctx context.Context, name string) (Task, error) {
	if CheckTaskName(name) != nil {
		return Task{}, ErrNoTask
	}
	var task Task
	order, err := t.kv.Get(ctx, taskPrefix+name+orderSuffix)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return Task{}, ErrNoTask
	case err != nil:
		return Task{}, fmt.Errorf("task %s: %w", name, err)
	}
	if err := json.Unmarshal(order.Value(), &task.TaskOrder); err != nil {
		return Task{}, fmt.Errorf("task %s cannot be read: %w", name, err)
	}
	task.orderRevision = order.Revision()
	progress, err := t.kv.Get(ctx, taskPrefix+name+progressSuffix)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return Task{}, fmt.Errorf("task %s: %w", name, err)
	default:
		if err := json.Unmarshal(progress.Value(), &task.Progress); err != nil {
			return Task{}, fmt.Errorf("the progress of task %s cannot be read: %w", name, err)
		}
		task.progressRevision = progress.Revision()
	}
	return task, nil
}

// Watch passes all tasks to take, oldest first, now and after every change. It blocks until take returns false or ctx
// ends. Then it returns nil or the cause of ctx.
func (t *Tasks) Watch(ctx context.Context, take func(all []Task) (more bool)) error {
	watcher, err := t.kv.Watch(ctx, taskPrefix+">")
	if err != nil {
		return fmt.Errorf("watch the tasks: %w", err)
	}
	defer func() { _ = watcher.Stop() }()
	book, complete := taskBook{}, false
	for {
		select {
		case entry, open := <-watcher.Updates():
			switch {
			case !open && ctx.Err() == nil:
				return errors.New("the watch of the tasks has ended")
			case !open:
				return context.Cause(ctx)
			case entry == nil:
				complete = true
			default:
				book.take(entry)
			}
			if complete && !take(book.list()) {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// taskBook has tasks by name. Watch builds it from the entries of the key-value bucket.
type taskBook map[string]*Task

func (b taskBook) take(entry jetstream.KeyValueEntry) {
	name, what, _ := strings.Cut(strings.TrimPrefix(entry.Key(), taskPrefix), ".")
	task := b[name]
	if task == nil {
		task = &Task{}
		b[name] = task
	}
	gone := entry.Operation() != jetstream.KeyValuePut
	switch "." + what {
	case orderSuffix:
		order := TaskOrder{}
		if !gone && json.Unmarshal(entry.Value(), &order) != nil || order.Name != name {
			order = TaskOrder{}
		}
		task.TaskOrder, task.orderRevision = order, entry.Revision()
	case progressSuffix:
		progress := TaskProgress{}
		if !gone && json.Unmarshal(entry.Value(), &progress) != nil {
			progress = TaskProgress{}
		}
		task.Progress, task.progressRevision = progress, entry.Revision()
	}
	if gone && task.Name == "" && task.Progress.State == "" {
		delete(b, name)
	}
}

// list returns the tasks that have an order.
func (b taskBook) list() []Task {
	all := make([]Task, 0, len(b))
	for _, task := range b {
		if task.Name != "" {
			all = append(all, *task)
		}
	}
	slices.SortFunc(all, func(x, y Task) int {
		return cmp.Or(x.Created.Compare(y.Created), strings.Compare(x.Name, y.Name))
	})
	return all
}

// changeTries is how often a change of an order is tried if concurrent changes come first.
const changeTries = 5

// Stop stops a task until it is resumed. Jobs that it has published stay published, and letters that it has not reached
// stay letters. Stop fails with ErrNoTask, or with ErrTaskDone if the task is done.
func (t *Tasks) Stop(ctx context.Context, name, by string) (Task, error) {
	return t.change(ctx, name, func(task *Task) error {
		if state := task.State(); state == TaskDone {
			return ErrTaskDone
		}
		task.Stopped, task.StoppedBy = true, by
		return nil
	})
}

// Resume continues a task that was stopped or has failed. It fails with ErrNoTask, or with ErrTaskDone if the task is
// done.
func (t *Tasks) Resume(ctx context.Context, name string) (Task, error) {
	return t.change(ctx, name, func(task *Task) error {
		switch task.State() {
		case TaskDone:
			return ErrTaskDone
		case TaskStopped, TaskFailed:
			task.Stopped, task.StoppedBy, task.Run = false, "", task.Run+1
		case TaskWaiting, TaskRunning:
		}
		return nil
	})
}

func (t *Tasks) change(ctx context.Context, name string, change func(*Task) error) (Task, error) {
	for try := 1; ; try++ {
		task, err := t.Get(ctx, name)
		if err != nil {
			return task, err
		}
		if err := change(&task); err != nil {
			return task, err
		}
		task.orderRevision, err = t.kv.Update(ctx, taskPrefix+name+orderSuffix, marshalTask(task.TaskOrder), task.orderRevision)
		if err == nil {
			return task, nil
		}
		if !staleEntry(err) || try == changeTries {
			return task, fmt.Errorf("task %s: %w", name, err)
		}
	}
}

// note stores the progress of a task. It fails with stream.ErrStale if another replica has stored progress since.
func (t *Tasks) note(ctx context.Context, task *Task) error {
	task.Progress.Updated = time.Now().UTC().Truncate(time.Millisecond)
	key, data := taskPrefix+task.Name+progressSuffix, marshalTask(task.Progress)
	revision, err := t.kv.Update(ctx, key, data, task.progressRevision)
	if staleEntry(err) && task.progressRevision == 0 {
		revision, err = t.kv.Create(ctx, key, data) // a deleted task of this name may have left a marker
	}
	switch {
	case err == nil:
		task.progressRevision = revision
		return nil
	case staleEntry(err):
		return stream.ErrStale
	}
	return fmt.Errorf("note how far task %s is: %w", task.Name, err)
}

func staleEntry(err error) bool {
	var wrong *jetstream.APIError
	return errors.As(err, &wrong) && (wrong.ErrorCode == stream.CodeWrongLastSeq || wrong.ErrorCode == stream.CodeWrongLastSeqConst) ||
		errors.Is(err, jetstream.ErrKeyExists)
}

func marshalTask(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("deadletter: a task that JSON cannot carry: " + err.Error())
	}
	return data
}

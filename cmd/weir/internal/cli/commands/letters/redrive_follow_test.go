package letters

import (
	"context"
	"testing"

	"weir/deadletter"
)

// TestTaskBesideAReplicaThatLags checks that a task counts as deleted only if a list has shown it before. The first
// list may lack a task that was just stored.
func TestTaskBesideAReplicaThatLags(t *testing.T) {
	t.Parallel()
	named := func(name string, state deadletter.TaskState) deadletter.Task {
		return deadletter.Task{TaskOrder: deadletter.TaskOrder{Name: name}, Progress: deadletter.TaskProgress{State: state}}
	}
	other, running, done := named("other", deadletter.TaskDone), named("one", deadletter.TaskRunning), named("one", deadletter.TaskDone)
	for what, c := range map[string]struct {
		lists [][]deadletter.Task
		gone  bool
	}{
		"a first list without the task": {[][]deadletter.Task{{other}, {other, running}, {other, done}}, false},
		"a task that is deleted":        {[][]deadletter.Task{{other, running}, {other}, {other, done}}, true},
	} {
		task := named("one", deadletter.TaskWaiting)
		err := awaitTask(t.Context(), func(_ context.Context, take func([]deadletter.Task) bool) error {
			for _, all := range c.lists {
				if !take(all) {
					break
				}
			}
			return nil
		}, &task, func(*deadletter.Task) {})
		if (err != nil) != c.gone || !c.gone && task.State() != deadletter.TaskDone {
			t.Errorf("%s: %v, and it is %s", what, err, task.State())
		}
	}
}

package deadletter_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/deadletter"

	"github.com/nats-io/nats.go/jetstream"
)

// TestNumbers checks that lists of letter numbers are written as ranges and read back unchanged, and that text other
// than an ascending list is refused.
func TestNumbers(t *testing.T) {
	for _, c := range []struct {
		numbers deadletter.Numbers
		text    string
	}{
		{nil, ""}, {deadletter.Numbers{7}, "7"}, {deadletter.Numbers{1, 2, 3, 5, 9, 10}, "1-3,5,9-10"},
	} {
		text, err := c.numbers.MarshalText()
		if err != nil || string(text) != c.text {
			t.Errorf("%v is %q, %v", c.numbers, text, err)
		}
		var back deadletter.Numbers
		if err := back.UnmarshalText(text); err != nil || !slices.Equal(back, c.numbers) {
			t.Errorf("%q is read as %v, %v", text, back, err)
		}
	}
	for _, text := range []string{"3-1", "5,4", "1,1", "x", "1-", "0-99999999999"} {
		if err := new(deadletter.Numbers).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// TestTasks checks the operations on tasks: no two have one name, a task rests when it is stopped, and continues when
// it is resumed. The number of stored tasks is bounded.
func TestTasks(t *testing.T) {
	js := openStream(t)
	bury(t, js, 0, 20, 10)
	ctx := t.Context()
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "weir_control", LimitMarkerTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b, err := deadletter.OpenBrowser(ctx, js)
	if err != nil {
		t.Fatal(err)
	}
	tasks := deadletter.NewTasks(kv)
	scope, err := b.Scope(ctx, deadletter.Selection{Filter: deadletter.Filter{API: "most", Until: time.Now().Add(time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	begun, err := tasks.Start(ctx, scope, deadletter.TaskOrder{Name: "one", By: "me", RateCount: 5, RatePer: int64(time.Minute)})
	if err != nil || begun.State() != deadletter.TaskWaiting || begun.First != 1 || begun.Last != 20 || begun.Rate().Per != time.Minute {
		t.Errorf("begun: %+v, %v", begun, err)
	}
	if _, err := tasks.Start(ctx, scope, deadletter.TaskOrder{Name: "one"}); !errors.Is(err, deadletter.ErrTaskKnown) {
		t.Errorf("another of the same name: %v", err)
	}
	for _, name := range []string{"One", "-x", "a.b", "a b", "*"} {
		if _, err := tasks.Start(ctx, scope, deadletter.TaskOrder{Name: name}); err == nil {
			t.Errorf("a task %q is begun", name)
		}
		if _, err := tasks.Get(ctx, name); !errors.Is(err, deadletter.ErrNoTask) {
			t.Errorf("task %q: %v", name, err)
		}
	}
	for _, step := range []struct {
		do   func() (deadletter.Task, error)
		want deadletter.TaskState
		run  int
	}{
		{func() (deadletter.Task, error) { return tasks.Stop(ctx, "one", "you") }, deadletter.TaskStopped, 0},
		{func() (deadletter.Task, error) { return tasks.Stop(ctx, "one", "you") }, deadletter.TaskStopped, 0},
		{func() (deadletter.Task, error) { return tasks.Resume(ctx, "one") }, deadletter.TaskWaiting, 1},
		{func() (deadletter.Task, error) { return tasks.Resume(ctx, "one") }, deadletter.TaskWaiting, 1},
		{func() (deadletter.Task, error) { return tasks.Get(ctx, "one") }, deadletter.TaskWaiting, 1},
	} {
		if task, err := step.do(); err != nil || task.State() != step.want || task.Run != step.run || task.Filter.API != "most" {
			t.Errorf("it is %s of run %d, %v; want %s of %d", task.State(), task.Run, err, step.want, step.run)
		}
	}
	ended, err := json.Marshal(deadletter.TaskProgress{State: deadletter.TaskDone, Run: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.Put(ctx, "task.one.progress", ended); err != nil {
		t.Fatal(err)
	}
	if _, err := tasks.Stop(ctx, "one", "you"); !errors.Is(err, deadletter.ErrTaskDone) {
		t.Errorf("what is done is stopped: %v", err)
	}
	for i := range 200 { // the task that is done makes room; no other does
		_, err = tasks.Start(ctx, scope, deadletter.TaskOrder{Name: fmt.Sprint("n", i)})
		if err != nil {
			t.Fatalf("task %d: %v", i, err)
		}
	}
	if _, err := tasks.Start(ctx, scope, deadletter.TaskOrder{}); !errors.Is(err, deadletter.ErrManyTasks) {
		t.Errorf("one too many: %v", err)
	}
	all, err := tasks.List(ctx)
	if err != nil || len(all) != 200 || slices.ContainsFunc(all, func(t deadletter.Task) bool { return t.Name == "one" }) {
		t.Errorf("%d tasks are kept, %v", len(all), err)
	}
	bucket, err := js.Stream(ctx, "KV_weir_control")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{"order", "progress"} {
		mark, err := bucket.GetLastMsgForSubject(ctx, "$KV.weir_control.task.one."+entry)
		if err != nil || mark.Header.Get("KV-Operation") != "PURGE" || mark.Header.Get("Nats-TTL") == "" {
			t.Errorf("the mark of the deleted %s does not expire: %+v, %v", entry, mark, err)
		}
	}
}

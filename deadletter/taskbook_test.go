package deadletter

import (
	"errors"
	"testing"

	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestTaskBookForgets checks that a watch keeps nothing of a task whose entries were deleted.
func TestTaskBookForgets(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	kv, err := natstest.JetStream(t).CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "weir_control"})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := kv.Watch(ctx, taskPrefix+">")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watcher.Stop() }()
	await.Receive(t, "the end of the stored entries", watcher.Updates())
	book := taskBook{}
	order, progress := taskPrefix+"one"+orderSuffix, taskPrefix+"one"+progressSuffix
	for _, c := range []struct {
		what  string
		do    func() error
		tasks int
		held  int
	}{
		{"ordered", func() error { _, err := kv.Put(ctx, order, marshalTask(TaskOrder{Name: "one"})); return err }, 1, 1},
		{"done", func() error { _, err := kv.Put(ctx, progress, marshalTask(TaskProgress{State: TaskDone})); return err }, 1, 1},
		{"half deleted", func() error { return kv.Purge(ctx, order) }, 0, 1},
		{"deleted", func() error { return kv.Purge(ctx, progress) }, 0, 0},
	} {
		if err := c.do(); err != nil {
			t.Fatal(err)
		}
		book.take(await.Receive(t, "an entry", watcher.Updates()))
		if n := len(book.list()); n != c.tasks || len(book) != c.held {
			t.Errorf("%s: the book lists %d tasks and holds %d", c.what, n, len(book))
		}
	}
}

// TestNameIsUsedAgain checks that a task can have the name of a deleted one, and that its progress is stored.
func TestNameIsUsedAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	kv, err := natstest.JetStream(t).CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "weir_control"})
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Purge(ctx, taskPrefix+"one"+progressSuffix); err != nil {
		t.Fatal(err)
	}
	task := &Task{TaskOrder: TaskOrder{Name: "one"}}
	for range 2 {
		if err := NewTasks(kv).note(ctx, task); err != nil {
			t.Errorf("the progress cannot be stored: %v", err)
		}
	}
	if err := NewTasks(kv).note(ctx, &Task{TaskOrder: TaskOrder{Name: "one"}}); !errors.Is(err, stream.ErrStale) {
		t.Errorf("another replica has stored progress: %v", err)
	}
}

// TestEditedBodyBesideAReplicaThatLags checks that an edited body is read from the stream's leader, even an empty one,
// and is gone only if it was deleted.
func TestEditedBodyBesideAReplicaThatLags(t *testing.T) {
	t.Parallel()
	ctx, js := t.Context(), natstest.JetStream(t)
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "weir_control"})
	if err != nil {
		t.Fatal(err)
	}
	natstest.LagReads(t, js, "KV_weir_control")
	o := &TaskOrder{EditedBody: editedBodyPrefix + "1", Edit: &Edit{SetBody: true}}
	for _, body := range []string{"other", ""} {
		if _, err := kv.Put(ctx, o.EditedBody, []byte(body)); err != nil {
			t.Fatal(err)
		}
		if err := NewTasks(kv).loadBody(ctx, js.Conn(), o); err != nil || string(o.Edit.Body) != body {
			t.Errorf("the body is %q, %v; want %q", o.Edit.Body, err, body)
		}
	}
	if err := kv.Purge(ctx, o.EditedBody); err != nil {
		t.Fatal(err)
	}
	if err := NewTasks(kv).loadBody(ctx, js.Conn(), o); !errors.Is(err, errBodyGone) {
		t.Errorf("after the body was deleted: %v", err)
	}
}

package deadletter_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/deadletter"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// taskRig is a server with letters, and a replica that works on tasks. There is no intake, and no job was called.
type taskRig struct {
	t     *testing.T
	js    jetstream.JetStream
	b     *deadletter.Browser
	tasks *deadletter.Tasks
}

func newTaskRig(t *testing.T) *taskRig {
	t.Helper()
	js := openStream(t)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "WEIR_pay_0", Subjects: []string{"weir.q.pay.0.>"}, Metadata: map[string]string{"weir.partitions": "1"},
	}); err != nil {
		t.Fatal(err)
	}
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "weir_control", LimitMarkerTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b, err := deadletter.OpenBrowser(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	worker := deadletter.NewTaskWorker(deadletter.TaskWorkerOptions{
		Conn: js.Conn(), JetStream: js, Control: kv, Instance: "me", Log: slog.New(slog.DiscardHandler),
		Terms: func(string) (deadletter.Terms, bool) { return deadletter.Terms{}, true },
		Calls: func(context.Context, deadletter.CallsQuery, func(deadletter.Trace)) (uint64, error) { return 0, nil },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await.Receive(t, "the worker's end", ended); err != nil {
			t.Error(err)
		}
	})
	return &taskRig{t: t, js: js, b: b, tasks: deadletter.NewTasks(kv)}
}

// bury stores a letter of job j.
func (r *taskRig) bury(l deadletter.Letter) {
	r.t.Helper()
	l.API, l.Key, l.JobID, l.At, l.Billed = "pay", "k", "j", time.Now(), deadletter.NotBilled
	if _, err := r.js.PublishMsg(r.t.Context(), l.Message()); err != nil {
		r.t.Fatal(err)
	}
}

// work starts a redrive and returns it when it has ended.
func (r *taskRig) work(s deadletter.Selection, o deadletter.TaskOrder) deadletter.Task {
	r.t.Helper()
	scope, err := r.b.Scope(r.t.Context(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	o.RateCount, o.RatePer = 100, int64(time.Second)
	task, err := r.tasks.Start(r.t.Context(), scope, o)
	if err != nil {
		r.t.Fatal(err)
	}
	await.Until(r.t, "the end of the redrive", func() bool {
		if task, err = r.tasks.Get(r.t.Context(), task.Name); err != nil {
			r.t.Fatal(err)
		}
		return task.State().Ended()
	})
	return task
}

// TestRefusedEditLeavesTheLetter checks that the original letter stays if the replica died before it deleted the letter
// of the refused edit.
func TestRefusedEditLeavesTheLetter(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what string
		edit *deadletter.Edit
		left []uint64
		did  func(*deadletter.Task) bool
	}{
		{
			"the edit, continued", &deadletter.Edit{SetBody: true, Body: []byte("edited")},
			[]uint64{1},
			func(task *deadletter.Task) bool {
				p := &task.Progress
				return p.State == deadletter.TaskFailed && strings.Contains(p.Why, deadletter.ErrEdit.Error()) && p.Tally.Refused == 1
			},
		},
		{"a redrive of the original", nil, []uint64{1, 2}, func(task *deadletter.Task) bool {
			return task.Progress.Tally.Skipped[deadletter.SkipSameID] == 1
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			r := newTaskRig(t)
			r.bury(deadletter.Letter{Reason: deadletter.Rejected, Body: []byte("body"), Origin: "WEIR_pay_0.1.100"})
			r.bury(deadletter.Letter{
				Reason: deadletter.Invalid, Body: []byte("edited"), Redrives: 1,
				Header: nats.Header{deadletter.HeaderEdited: {"1 body"}},
			})
			task := r.work(deadletter.Selection{Seqs: []uint64{1}}, deadletter.TaskOrder{Edit: c.edit})
			left := seqs(t, wholeScope(t, r.b), deadletter.HeadersOnly)
			if !c.did(&task) || !slices.Equal(left, c.left) {
				t.Errorf("letters %v are left, want %v; the redrive: %+v", left, c.left, task.Progress)
			}
		})
	}
}

// TestEventOfSettledLetters checks that a redrive sends its event even if it only deleted letters whose jobs had gone
// on.
func TestEventOfSettledLetters(t *testing.T) {
	t.Parallel()
	r := newTaskRig(t)
	for redrives, origin := range []string{"WEIR_pay_0.1.100", "WEIR_pay_0.2.200"} {
		r.bury(deadletter.Letter{Reason: deadletter.Rejected, Body: []byte("body"), Origin: origin, Redrives: redrives})
	}
	task := r.work(deadletter.Selection{Seqs: []uint64{1}}, deadletter.TaskOrder{By: "ann"})
	if task.Progress.Tally.Settled != 1 {
		t.Fatalf("the redrive of a letter with a later one: %+v", task.Progress)
	}
	events, err := r.js.Stream(t.Context(), deadletter.EventsStream)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := events.GetLastMsgForSubject(t.Context(), "weir.events.redriven.>")
	if err != nil {
		t.Fatal(err)
	}
	var event struct{ Data deadletter.OperationData }
	if err := json.Unmarshal(msg.Data, &event); err != nil {
		t.Fatal(err)
	}
	if did := event.Data; did.Who != "ann" || did.Settled != 1 || did.Letters != 0 {
		t.Errorf("the event is %s", msg.Data)
	}
}

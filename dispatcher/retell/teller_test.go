package retell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const queued = "WEIR_sms_0"

// world is a server with the streams that a Teller reads, and the ends that it has reported.
type world struct {
	t      *testing.T
	js     jetstream.JetStream
	teller *Teller
	ends   chan *nats.Msg
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, js: natstest.JetStream(t), ends: make(chan *nats.Msg, 100)}
	for name, subject := range map[string]string{
		ledger.ResultsStream: ledger.ResultSubjects.Below(), deadletter.Stream: "weir.dead.>", queued: "queue.>",
	} {
		if _, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			t.Fatal(err)
		}
	}
	w.teller = New(Options{JetStream: w.js, Log: slog.New(slog.DiscardHandler), Reply: func(m *nats.Msg) error { w.ends <- m; return nil }})
	return w
}

func (w *world) run() {
	done := make(chan error, 1)
	ctx, teller := w.t.Context(), w.teller
	go func() { done <- teller.Run(ctx) }()
	w.t.Cleanup(func() {
		if err := await.Receive(w.t, "the teller to end", done); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) store(msg *nats.Msg) uint64 {
	w.t.Helper()
	ack, err := w.js.PublishMsg(w.t.Context(), msg)
	if err != nil {
		w.t.Fatal(err)
	}
	return ack.Sequence
}

// result stores a result of job that was queued at seq.
func (w *world) result(job string, seq uint64, body string) {
	w.t.Helper()
	w.store(&nats.Msg{Subject: ledger.ResultSubject("sms", "k"), Data: []byte(body), Header: nats.Header{
		ingest.HeaderMsgID: {"result." + ledger.OriginOf(queued, seq, bucket.MicrosOf(time.Now()))}, ingest.HeaderJobID: {job},
		ledger.HeaderOutcome: {ledger.Done},
	}})
}

// letter stores a letter of job; origin is "" for one that was refused.
func (w *world) letter(job string, reason deadletter.Reason, origin string) {
	w.t.Helper()
	l := &deadletter.Letter{API: "sms", Key: "k", JobID: job, Reason: reason, Origin: origin, At: time.Now(), Header: nats.Header{}}
	w.store(l.Message())
}

func (w *world) next() *nats.Msg {
	w.t.Helper()
	return await.Receive(w.t, "an end to be told", w.ends)
}

func again(job, replyTo string, seq uint64) Duplicate {
	return Duplicate{API: "sms", Key: "k", Job: job, ReplyTo: replyTo, Stream: queued, Seq: seq}
}

// TestKeptEnds checks that the kept end of the job's present life is reported: neither an older end of its id
// nor the letter of a refusal, which is no end.
func TestKeptEnds(t *testing.T) {
	w := newWorld(t)
	w.result("a", 3, "old")
	w.result("a", 7, "new")
	w.letter("a", deadletter.Overflow, "")
	w.result("b", 8, "first")
	w.letter("b", deadletter.Rejected, ledger.OriginOf(queued, 9, 1))
	w.run()
	w.teller.Tell(again("a", "to.a", 7))
	if m := w.next(); m.Subject != "to.a" || string(m.Data) != "new" || m.Header.Get(ingest.HeaderMsgID) != "" {
		t.Errorf("%s %q %v", m.Subject, m.Data, m.Header)
	}
	w.teller.Tell(again("b", "to.b", 8))
	if m := w.next(); m.Subject != "to.b" || m.Header.Get(ledger.HeaderOutcome) != "rejected" || len(m.Data) != 0 {
		t.Errorf("%s %q %v", m.Subject, m.Data, m.Header)
	}
}

// TestEndsToCome checks that a duplicate of a waiting job is told when the job ends, and that other jobs' ends
// do not count. A duplicate whose reply subject the job itself names is left to the owner of its partition.
func TestEndsToCome(t *testing.T) {
	w := newWorld(t)
	w.result("a", 3, "old")
	own := w.store(&nats.Msg{Subject: "queue.k", Header: nats.Header{ingest.HeaderJobID: {"own"}, "weir-reply-to": {"to.own"}}})
	w.run()
	w.teller.Tell(again("own", "to.own", own))
	for i := range 3 {
		w.teller.Tell(again("a", fmt.Sprintf("to.%d", i), 7))
		w.teller.Tell(again("a", fmt.Sprintf("to.%d", i), 7)) // once more
	}
	await.Until(t, "the duplicates to wait", func() bool {
		w.teller.mu.Lock()
		defer w.teller.mu.Unlock()
		return w.teller.order.Len() == 3 && w.teller.stop != nil
	})
	w.letter("a", deadletter.Overflow, "")
	w.result("own", own, "own")
	w.result("other", 6, "other")
	w.result("a", 7, "new")
	told := map[string]int{}
	for range 3 {
		m := w.next()
		if told[m.Subject]++; string(m.Data) != "new" {
			t.Errorf("%s is told %q %v", m.Subject, m.Data, m.Header)
		}
	}
	if len(told) != 3 {
		t.Errorf("told: %v", told)
	}
	w.teller.Tell(again("b", "to.b", 8)) // following has ended, and begins anew
	w.letter("b", deadletter.Unknown, ledger.OriginOf(queued, 8, 1))
	if m := w.next(); m.Subject != "to.b" || m.Header.Get(ledger.HeaderOutcome) != "unknown" {
		t.Errorf("%s %v", m.Subject, m.Header)
	}
}

// TestRestartTellsOnce checks that a duplicate that waits outlives a restart: of all replicas that take it up, one
// tells its end, also if the job ended meanwhile, or if a replica's watch of the notes breaks off. A reported end
// leaves no note.
func TestRestartTellsOnce(t *testing.T) {
	w := newWorld(t)
	kv, err := w.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "control"})
	if err != nil {
		t.Fatal(err)
	}
	w.teller.Notes = kv
	noted := func() int {
		names, err := kv.Keys(t.Context())
		if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
			t.Fatal(err)
		}
		return len(names)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.teller.Run(ctx) }()
	w.teller.Tell(again("a", "to.a", 7))
	w.teller.Tell(again("b", "to.b", 8))
	await.Until(t, "the duplicates to be noted", func() bool { return noted() == 2 })
	stop()
	if err := await.Receive(t, "the teller to end", ended); err != nil {
		t.Fatal(err)
	}
	w.result("a", 7, "of a")
	options := w.teller.Options
	for range 2 {
		options.Notes = &brokenOff{KeyValue: kv}
		w.teller = New(options)
		w.run()
	}
	if m := w.next(); m.Subject != "to.a" || string(m.Data) != "of a" {
		t.Errorf("%s %q", m.Subject, m.Data)
	}
	w.result("b", 8, "of b")
	if m := w.next(); m.Subject != "to.b" || string(m.Data) != "of b" {
		t.Errorf("%s %q", m.Subject, m.Data)
	}
	await.Until(t, "no notes", func() bool { return noted() == 0 })
	w.teller.Tell(again("c", "to.c", 9)) // an end that is told after all that could be told twice
	w.result("c", 9, "of c")
	if m := w.next(); m.Subject != "to.c" {
		t.Errorf("%s %q is told again", m.Subject, m.Data)
	}
}

// TestStopNotesTheRest checks that a duplicate that came while the Teller was stopping is noted, and told its end after
// a restart.
func TestStopNotesTheRest(t *testing.T) {
	const duplicates = 50
	w := newWorld(t)
	kv, err := w.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "control"})
	if err != nil {
		t.Fatal(err)
	}
	w.teller.Notes = kv
	for i := range duplicates {
		w.teller.Tell(again("a", fmt.Sprintf("to.%d", i), 7))
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := await.Result(t, "the teller to end", func() error { return w.teller.Run(ctx) }); err != nil {
		t.Fatal(err)
	}
	w.result("a", 7, "of a")
	w.teller = New(w.teller.Options)
	w.run()
	told := map[string]bool{}
	for range duplicates {
		told[w.next().Subject] = true
	}
	if len(told) != duplicates {
		t.Errorf("%d duplicates are told, want %d", len(told), duplicates)
	}
}

// brokenOff is a bucket whose first watch ends before it has shown an entry, as after a lost connection.
type brokenOff struct {
	jetstream.KeyValue
	watches atomic.Int32
}

// Watch implements jetstream.KeyValue.
func (b *brokenOff) Watch(ctx context.Context, keys string, opts ...jetstream.WatchOpt) (jetstream.KeyWatcher, error) {
	if b.watches.Add(1) == 1 {
		return endedWatch{}, nil
	}
	return b.KeyValue.Watch(ctx, keys, opts...)
}

// endedWatch is a watch that has ended.
type endedWatch struct{ jetstream.KeyWatcher }

// Updates implements jetstream.KeyWatcher.
func (endedWatch) Updates() <-chan jetstream.KeyValueEntry {
	ended := make(chan jetstream.KeyValueEntry)
	close(ended)
	return ended
}

// Stop implements jetstream.KeyWatcher.
func (endedWatch) Stop() error { return nil }

// TestBounds checks that a duplicate is dropped if it finds no room to be looked for, and that the oldest is dropped if
// too many wait.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	for i := range mostLooks + 1 {
		w.teller.Tell(again(fmt.Sprintf("job-%d", i), "to.a", 7))
	}
	if waits := w.teller.order.Len(); waits != mostLooks {
		t.Errorf("%d are to be looked for, want %d", waits, mostLooks)
	}
	for i := range mostWaiting {
		w.teller.register(again(fmt.Sprintf("later-%d", i), "to.a", 7), time.Now())
	}
	w.teller.await()
	if w.teller.order.Len() != mostWaiting || len(w.teller.jobs) != mostWaiting || w.teller.jobs[job{"sms", "k", "job-0"}] != nil {
		t.Errorf("%d wait, of %d jobs, want %d", w.teller.order.Len(), len(w.teller.jobs), mostWaiting)
	}
}

package stream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// behind returns a bucket as its leader has it, with the keys a and b, and as a replica has it that lags: with a only.
// Two servers stand for the two.
func behind(t *testing.T) (leader jetstream.JetStream, replica jetstream.KeyValue) {
	t.Helper()
	leader = natstest.JetStream(t)
	for _, js := range []jetstream.JetStream{leader, natstest.JetStream(t)} {
		bucket, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "words"})
		if err != nil {
			t.Fatal(err)
		}
		putKey(t, bucket, "a")
		if js == leader {
			putKey(t, bucket, "b")
		}
		replica = bucket
	}
	return leader, replica
}

func putKey(t *testing.T, kv jetstream.KeyValue, key string) {
	t.Helper()
	if _, err := kv.PutString(t.Context(), key, "x"); err != nil {
		t.Fatal(err)
	}
}

// TestWatchWhole checks that a watch from a replica that lags says that it has shown all only when the replica has
// caught up. A watch of a Renewing bucket does so too.
func TestWatchWhole(t *testing.T) {
	t.Parallel()
	leader, replica := behind(t)
	watcher, err := WatchWhole(t.Context(), leader.Conn(), replica, ">")
	if err != nil {
		t.Fatal(err)
	}
	renewed, err := Renewing(replica, leader.Conn()).WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watchers := []jetstream.KeyWatcher{watcher, renewed}
	for _, w := range watchers {
		if entry := await.Receive(t, "a", w.Updates()); entry == nil || entry.Key() != "a" {
			t.Fatalf("first came %v", entry)
		}
	}
	putKey(t, replica, "b")
	for _, w := range watchers {
		if entry := await.Receive(t, "b", w.Updates()); entry == nil || entry.Key() != "b" {
			t.Fatalf("after a came %v", entry)
		}
		if entry := await.Receive(t, "the end of what was there", w.Updates()); entry != nil {
			t.Errorf("after b came %v", entry)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		for range w.Updates() {
			t.Error("an entry came after the stop")
		}
	}
}

// TestWatchWithoutTheNewest checks that a watch does not wait for an entry that the leader has no more, and that a
// watch of no entries at all says so.
func TestWatchWithoutTheNewest(t *testing.T) {
	t.Parallel()
	leader, replica := behind(t)
	watcher, err := WatchWhole(t.Context(), leader.Conn(), replica, ">")
	if err != nil {
		t.Fatal(err)
	}
	words, err := leader.Stream(t.Context(), "KV_words")
	if err == nil {
		err = words.Purge(t.Context(), jetstream.WithPurgeSubject("$KV.words.b"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if there := untilRead(t, watcher); len(there) != 1 || there[0] != "a" {
		t.Errorf("there is %v", there)
	}
	if watcher, err = WatchWhole(t.Context(), leader.Conn(), replica, "none.>"); err != nil {
		t.Fatal(err)
	}
	if there := untilRead(t, watcher); len(there) != 0 {
		t.Errorf("there is %v", there)
	}
}

// TestHistoryIsWhole checks that the history of a Renewing bucket holds the newest value, although the replica that
// answers did not have it yet.
func TestHistoryIsWhole(t *testing.T) {
	t.Parallel()
	leader, replica := behind(t)
	renewing := Renewing(replica, leader.Conn())
	type history struct {
		entries []jetstream.KeyValueEntry
		err     error
	}
	read := make(chan history, 1)
	go func() {
		entries, err := renewing.History(t.Context(), "b")
		read <- history{entries, err}
	}()
	putKey(t, replica, "b")
	if h := await.Receive(t, "the history", read); h.err != nil || len(h.entries) != 1 {
		t.Errorf("%d entries, %v", len(h.entries), h.err)
	}
	if _, err := renewing.History(t.Context(), "none"); !errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("the history of no key: %v", err)
	}
}

// shownBy is a watch of which the test decides what it shows.
type shownBy chan jetstream.KeyValueEntry

func (s shownBy) Updates() <-chan jetstream.KeyValueEntry { return s }
func (s shownBy) Stop() error                             { return nil }

// TestWatchEndsWithoutTheNewest checks that a watch ends if the replica stays behind, whether the leader answers or
// not.
func TestWatchEndsWithoutTheNewest(t *testing.T) {
	for name, answer := range map[string]func(context.Context) (uint64, error){
		"the leader answers": func(context.Context) (uint64, error) { return 3, nil },
		"no answer": func(ctx context.Context) (uint64, error) {
			await.Receive(t, "the end of the question", ctx.Done())
			return 0, ctx.Err()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			shown, start := make(shownBy), time.Now()
			ctx, stop := context.WithCancel(t.Context())
			updates := make(chan jetstream.KeyValueEntry)
			w := &wholeWatcher{KeyWatcher: shown, newest: answer, updates: updates, stopped: stop}
			go w.run(ctx, beginning{newest: 2})
			shown <- nil
			for entry := range w.Updates() {
				t.Errorf("%s: %v came", name, entry)
			}
			if took := time.Since(start); took < watchWait || took > watchWait+2*wholeAgain {
				t.Errorf("%s: the watch ended after %s", name, took)
			}
		})
	}
}

// revision is an entry of which only the revision matters.
type revision struct {
	jetstream.KeyValueEntry

	is uint64
}

func (r revision) Revision() uint64 { return r.is }

// TestWatchOfASilentClient checks that a watch ends the present entries, and goes on, although the client does not say
// that it has shown all: when the leader says that nothing newer exists, and not before.
func TestWatchOfASilentClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shown, newest := make(shownBy), uint64(3) // an entry was stored after the watch began
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		asked := 0
		w := &wholeWatcher{
			KeyWatcher: shown, newest: func(context.Context) (uint64, error) { asked++; return newest, nil },
			updates: make(chan jetstream.KeyValueEntry), stopped: stop,
		}
		go w.run(ctx, beginning{newest: 2})
		for _, r := range []uint64{1, 2} {
			shown <- revision{is: r}
			await.Receive(t, "the entry", w.Updates())
		}
		Sleep(ctx, 5*wholeAgain)
		select {
		case entry := <-w.Updates():
			t.Fatalf("%v came before revision 3", entry)
		default:
		}
		shown <- revision{is: 3}
		if entry := await.Receive(t, "revision 3", w.Updates()); entry == nil {
			t.Fatal("the end came before revision 3")
		}
		if entry := await.Receive(t, "the end", w.Updates()); entry != nil {
			t.Fatalf("%v came instead of the end", entry)
		}
		asked = 0
		shown <- nil // the client speaks late
		Sleep(ctx, time.Hour)
		if asked > 0 {
			t.Errorf("the leader was asked %d times after the end", asked)
		}
		shown <- revision{is: 4}
		if entry := await.Receive(t, "revision 4", w.Updates()); entry == nil {
			t.Error("the watch did not go on after the end")
		}
	})
}

// TestWatchOfADamagedNewestEntry checks that a watch does not begin, and that one that has begun ends, if the leader
// cannot read its newest entry.
func TestWatchOfADamagedNewestEntry(t *testing.T) {
	js := spoiled(t, 10, "newest of d")
	kv, err := js.KeyValue(t.Context(), "words")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WatchWhole(t.Context(), js.Conn(), kv, "d"); !errors.Is(err, ErrUnreadable) {
		t.Errorf("the watch begins with %v", err)
	}
	if _, err := Renewing(kv, js.Conn()).History(t.Context(), "d"); !errors.Is(err, ErrUnreadable) {
		t.Errorf("the history is %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		shown := make(shownBy)
		w := &wholeWatcher{
			KeyWatcher: shown, newest: func(context.Context) (uint64, error) { return 0, ErrUnreadable },
			updates: make(chan jetstream.KeyValueEntry), stopped: stop,
		}
		go w.run(ctx, beginning{newest: 5})
		shown <- revision{is: 3}
		await.Receive(t, "the entry", w.Updates())
		shown <- nil
		for entry := range w.Updates() {
			t.Errorf("%v came", entry)
		}
	})
}

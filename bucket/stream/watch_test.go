package stream

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// TestWatchEndsWithItsServer checks that a watch whose server was restarted ends when the connection is back, without
// waiting for missing heartbeats. The next watch reports the changes in between.
func TestWatchEndsWithItsServer(t *testing.T) {
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	port := natstest.Port(t, ns)
	js := natstest.Connect(t, ns)
	kv, err := EnsureBucket(t.Context(), js, jetstream.KeyValueConfig{Bucket: "words", History: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	kv = Renewing(kv, js.Conn())
	for _, key := range []string{"stays", "goes"} {
		if _, err := kv.PutString(t.Context(), key, "x"); err != nil {
			t.Fatal(err)
		}
	}
	watcher, err := kv.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if there := untilRead(t, watcher); len(there) != 2 {
		t.Errorf("there is %v", there)
	}

	stop := func() { ns.Shutdown(); ns.WaitForShutdown() }
	stop()
	ns = natstest.Start(t, dir, 0) // at another port
	elsewhere, err := natstest.Connect(t, ns).KeyValue(t.Context(), "words")
	if err != nil {
		t.Fatal(err)
	}
	if err := elsewhere.Delete(t.Context(), "goes"); err != nil {
		t.Fatal(err)
	}
	stop()
	natstest.Start(t, dir, port)

	if entry := await.Receive(t, "the watch to end", watcher.Updates()); entry != nil {
		t.Fatalf("the watch goes on and tells %s", entry.Key())
	}
	var next jetstream.KeyWatcher
	await.Until(t, "the next watch", func() bool { next, err = kv.WatchAll(t.Context()); return err == nil })
	if there := untilRead(t, next); len(there) != 1 || there[0] != "stays" {
		t.Errorf("there is %v", there)
	}
	if err := next.Stop(); err != nil {
		t.Error(err)
	}
	await.Receive(t, "the end of a watch that was stopped", next.Updates())
	if err := next.Stop(); err != nil {
		t.Errorf("a watch that has ended is stopped: %v", err)
	}
}

// untilRead returns the keys that a watch finds at its beginning.
func untilRead(t *testing.T, w jetstream.KeyWatcher) (keys []string) {
	t.Helper()
	for {
		entry := await.Receive(t, "an entry", w.Updates())
		if entry == nil {
			return keys
		}
		if entry.Operation() == jetstream.KeyValuePut {
			keys = append(keys, entry.Key())
		}
	}
}

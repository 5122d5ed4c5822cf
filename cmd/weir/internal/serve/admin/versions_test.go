package admin

import (
	"errors"
	"testing"

	"weir/bucket/natstest"
	"weir/cmd/weir/internal/nats/connect"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestFoundFileBesideAReplicaThatLags checks that the file that was considered last is read from the leader. A replica
// that lags answers that there is none, and weir would then apply the file again.
func TestFoundFileBesideAReplicaThatLags(t *testing.T) {
	js := natstest.JetStream(t)
	store, err := EnsureConfigStore(t.Context(), js, 1)
	if err != nil {
		t.Fatal(err)
	}
	version, err := store.Put(t.Context(), StoredConfig{YAML: "apis: {pay: {url: 'https://pay.example', bucket: {rate: 1/s, capacity: 1}}}\n"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	natstest.LagReads(t, js, "KV_"+connect.ConfigBucket)
	file := FoundFile{Sum: "sum", After: version}
	if v, _, err := store.Newest(t.Context()); err != nil || v == nil || v.File != (FoundFile{}) {
		t.Fatalf("before a file was found: %+v, %v", v, err)
	}
	if err := store.Found(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if v, _, err := store.Newest(t.Context()); err != nil || v == nil || v.File != file {
		t.Errorf("the newest version: %+v, %v; want the file %+v", v, err, file)
	}
	kv, err := js.KeyValue(t.Context(), connect.ConfigBucket)
	if err == nil {
		err = kv.Delete(t.Context(), fileKey)
	}
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err := store.Newest(t.Context()); err != nil || v == nil || v.File != (FoundFile{}) {
		t.Errorf("after the key was deleted: %+v, %v", v, err)
	}
}

// TestFoundConfigStoreRenewsItsWatches checks that a bucket that was opened, not made, reads like one that was made: its
// watches end when a lost connection is back, and so they show all that the leader has.
func TestFoundConfigStoreRenewsItsWatches(t *testing.T) {
	js := natstest.JetStream(t)
	if _, err := FindConfigStore(t.Context(), js); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Fatalf("without a bucket: %v", err)
	}
	if _, err := EnsureConfigStore(t.Context(), js, 1); err != nil {
		t.Fatal(err)
	}
	store, err := FindConfigStore(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := store.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if entry := await.Receive(t, "the end of the present versions", watcher.Updates()); entry != nil {
		t.Fatalf("a version: %v", entry)
	}
	if err := js.Conn().ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		for range watcher.Updates() {
		}
		close(ended)
	}()
	await.Receive(t, "the end of the watch", ended)
}

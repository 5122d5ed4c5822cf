package stream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// noted is a disk that notes each flush.
type noted struct {
	mu    sync.Mutex
	asked []string
	err   error
	hold  chan struct{} // nil: no flush waits
}

func (n *noted) Flush(ctx context.Context, stream string) error {
	if n.hold != nil {
		select {
		case <-n.hold:
		case <-ctx.Done():
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, stream)
	return n.err
}

func (n *noted) Writing(string) func() { return func() {} }

func (n *noted) taken() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	asked := n.asked
	n.asked = nil
	return asked
}

// TestOnDisk checks that each kind of write waits for the disk of its stream, and fails if the disk does.
func TestOnDisk(t *testing.T) {
	disk := &noted{}
	js := OnDisk(natstest.JetStream(t), disk)
	if DiskOf(js) != Disk(disk) || DiskOf(natstest.JetStream(t)) != nil {
		t.Error("a JetStream does not know its disk, or another one does")
	}
	var kv jetstream.KeyValue
	ctx := t.Context()
	cfg := jetstream.StreamConfig{Name: "JOBS", Subjects: []string{"jobs"}}
	steps := []struct {
		name, stream string
		do           func() error
	}{
		{"create a stream", "JOBS", func() error { _, err := js.CreateStream(ctx, cfg); return err }},
		{"update a stream", "JOBS", func() error { _, err := js.UpdateStream(ctx, cfg); return err }},
		{"ensure a stream", "JOBS", func() error { _, err := js.CreateOrUpdateStream(ctx, cfg); return err }},
		{"publish", "JOBS", func() error { _, err := js.Publish(ctx, "jobs", nil); return err }},
		{"publish a message", "JOBS", func() error { _, err := js.PublishMsg(ctx, &nats.Msg{Subject: "jobs"}); return err }},
		{"create a bucket", "", func() (err error) {
			kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "b"})
			return err
		}},
		{"create an entry", "KV_b", func() error { _, err := kv.Create(ctx, "k", nil); return err }},
		{"update an entry", "KV_b", func() error { _, err := kv.Update(ctx, "k", nil, 1); return err }},
		{"put an entry", "KV_b", func() error { _, err := kv.Put(ctx, "k", nil); return err }},
		{"put a text", "KV_b", func() error { _, err := kv.PutString(ctx, "k", ""); return err }},
		{"delete an entry", "KV_b", func() error { return kv.Delete(ctx, "k") }},
		{"purge an entry", "KV_b", func() error { return kv.Purge(ctx, "k") }},
		{"put in a bucket that is there", "KV_b", func() error {
			again, err := js.KeyValue(ctx, "b")
			if err == nil {
				_, err = again.Put(ctx, "k", nil)
			}
			return err
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if asked := disk.taken(); s.stream != "" && !slices.Equal(asked, []string{s.stream}) {
			t.Errorf("%s asked the disk of %q, want %s", s.name, asked, s.stream)
		}
	}
	if _, err := js.PublishAsync("jobs", nil); err == nil {
		t.Error("a publish that nobody waits for is taken")
	}
	disk.err = errors.New("it takes nothing")
	for _, s := range steps[1:5] {
		if err := s.do(); !errors.Is(err, disk.err) {
			t.Errorf("%s where the disk fails: %v", s.name, err)
		}
	}
	if _, err := kv.Put(ctx, "k", nil); !errors.Is(err, disk.err) {
		t.Errorf("put an entry where the disk fails: %v", err)
	}
}

// TestWatchWaitsForTheDisk checks that a reader of a bucket sees no entry that a power cut could still lose.
func TestWatchWaitsForTheDisk(t *testing.T) {
	plain := natstest.JetStream(t)
	others, err := plain.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := others.Put(t.Context(), "there", nil); err != nil {
		t.Fatal(err)
	}
	disk := &noted{hold: make(chan struct{})}
	kv, err := OnDisk(plain, disk).KeyValue(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := kv.WatchAll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	select {
	case entry := <-watcher.Updates():
		t.Errorf("%v came before it was on disk", entry)
	case disk.hold <- struct{}{}:
	}
	if entry := await.Receive(t, "what was there", watcher.Updates()); entry == nil || entry.Key() != "there" {
		t.Fatalf("what was there came as %v", entry)
	}
	close(disk.hold)
	if entry := await.Receive(t, "the end of what was there", watcher.Updates()); entry != nil {
		t.Errorf("the end of what was there came as %v", entry)
	}
	for _, key := range []string{"a", "b", "c"} {
		if _, err := others.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
		if entry := await.Receive(t, "an entry", watcher.Updates()); entry == nil || entry.Key() != key {
			t.Errorf("%s came as %v", key, entry)
		}
	}
	if err := watcher.Stop(); err != nil {
		t.Error(err)
	}
	for range watcher.Updates() {
		t.Error("an entry came after the stop")
	}
}

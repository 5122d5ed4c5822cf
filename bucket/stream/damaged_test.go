package stream

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/ingest/await"
)

// spoiled returns a bucket with the keys a to d, of which c is deleted. The values with the texts are damaged.
func spoiled(t *testing.T, history uint8, damaged ...string) jetstream.JetStream {
	t.Helper()
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	kv, err := natstest.Connect(t, ns).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{
		Bucket: "words", History: history, LimitMarkerTTL: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		for _, version := range []string{"older", "middle", "newest"} {
			if _, err := kv.PutString(t.Context(), key, version+" of "+key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := kv.Delete(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	for _, text := range damaged {
		natstest.Spoil(t, dir, "KV_words", text)
	}
	return natstest.Connect(t, natstest.Start(t, dir, 0))
}

// TestDamaged checks that exactly the keys whose newest values cannot be read are found.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, damaged := range [][]string{nil, {"a"}, {"a", "b"}, {"d"}} {
		var texts []string
		for _, key := range damaged {
			texts = append(texts, "newest of "+key)
		}
		keys, err := Damaged(t.Context(), FromLeader(spoiled(t, 1, texts...)), "words", time.Millisecond)
		if err != nil || !slices.Equal(keys, damaged) {
			t.Errorf("damaged is %q instead of %q, %v", keys, damaged, err)
		}
	}
	if keys, err := Damaged(t.Context(), FromLeader(natstest.JetStream(t)), "words", time.Millisecond); err != nil || len(keys) > 0 {
		t.Errorf("without a bucket: %q, %v", keys, err)
	}
}

// TestMendBucket checks that a bucket with damaged values can be written again, with empty values for some of them and
// with all other values, also if a first attempt ended before or after any change.
func TestMendBucket(t *testing.T) {
	t.Parallel()
	keep := func(key string) bool { return key != "a" }
	for _, done := range []bool{false, true} {
		changes := 0
		for ended := false; !ended; changes++ {
			js := FromLeader(spoiled(t, 1, "newest of b", "newest of a"))
			damaged, err := Damaged(t.Context(), js, "words", time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := MendBucket(t.Context(), &breaking{JetStream: js, after: changes, done: done}, "words", damaged, keep); err == nil {
				ended = true
			} else if damaged, err = Damaged(t.Context(), js, "words", time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if _, err := MendBucket(t.Context(), js, "words", damaged, keep); !ended && err != nil {
				t.Fatalf("after %d changes: %v", changes, err)
			}
			checkMended(t, js)
		}
		if changes < 7 {
			t.Errorf("it ended after %d changes", changes)
		}
	}
}

func checkMended(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	kv, err := js.KeyValue(t.Context(), "words")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"b": "", "d": "newest of d"} {
		if got, err := kv.Get(t.Context(), key); err != nil || string(got.Value()) != want || got.Revision() < 14 {
			t.Errorf("%s is %v, %v", key, got, err)
		}
	}
	for _, key := range []string{"a", "c"} {
		if got, err := kv.Get(t.Context(), key); !errors.Is(err, jetstream.ErrKeyNotFound) {
			t.Errorf("%s is %v, %v", key, got, err)
		}
	}
	for _, key := range []string{"a", "b", "c", "d"} {
		if _, err := kv.PutString(t.Context(), key, "again"); err != nil {
			t.Errorf("write %s: %v", key, err)
		}
	}
	if _, err := js.Stream(t.Context(), mendingStream); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the copies: %v", err)
	}
}

// breaking is a JetStream that refuses each change after some.
type breaking struct {
	jetstream.JetStream

	after int
	done  bool // the change is made that is refused
}

// change makes a change, or refuses it.
func (b *breaking) change(do func() error) error {
	if b.after--; b.after >= 0 {
		return do()
	}
	if b.done {
		_ = do() // the refusal is what counts
	}
	return context.DeadlineExceeded
}

func (b *breaking) CreateStream(ctx context.Context, cfg jetstream.StreamConfig) (s jetstream.Stream, err error) {
	err = b.change(func() error { s, err = b.JetStream.CreateStream(ctx, cfg); return err })
	return s, err
}

func (b *breaking) DeleteStream(ctx context.Context, name string) error {
	return b.change(func() error { return b.JetStream.DeleteStream(ctx, name) })
}

func (b *breaking) Publish(ctx context.Context, subject string, data []byte, o ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	err = b.change(func() error { ack, err = b.JetStream.Publish(ctx, subject, data, o...); return err })
	return ack, err
}

func (b *breaking) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (ack *jetstream.PubAck, err error) {
	err = b.change(func() error { ack, err = b.JetStream.PublishMsg(ctx, m, o...); return err })
	return ack, err
}

// TestHistoryWithADamagedVersion checks that the history of a key can be read if an older version of it is damaged.
func TestHistoryWithADamagedVersion(t *testing.T) {
	t.Parallel()
	js := spoiled(t, 10, "older of b")
	kv, err := js.KeyValue(t.Context(), "words")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	entries, err := Renewing(kv, js.Conn()).History(ctx, "b")
	if err != nil || len(entries) != 2 {
		t.Errorf("%d versions, %v", len(entries), err)
	}
}

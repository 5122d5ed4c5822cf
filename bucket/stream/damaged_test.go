package stream

import (
	"context"
	"slices"
	"testing"
	"time"

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

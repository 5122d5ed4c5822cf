package queue

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/natstest"
	"weir/bucket/stream"
	"weir/ingest/await"
)

// TestStreamIsOnlyAddedTo checks that a stream keeps settings that exceed what this version asks for, gets those that
// it lacks, and follows the configuration in the bounds that the configuration sets.
func TestStreamIsOnlyAddedTo(t *testing.T) {
	p := openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	js := p.queue.js
	newer := jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.a", "s.later"}, MaxAge: time.Hour, MaxBytes: 2 << 20, MaxMsgSize: 2 << 10, MaxMsgsPerSubject: -1,
		Duplicates: 5 * time.Minute, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld, Compression: jetstream.S2Compression,
		AllowDirect: true, Description: "later",
		Metadata: map[string]string{"later": "1", "io.nats.monitor.enabled": "0", stream.MetaSchema: fmt.Sprint(stream.Schema)},
	}
	made, err := js.CreateStream(t.Context(), newer)
	if err != nil {
		t.Fatal(err)
	}
	before := made.CachedInfo().Config
	older := jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s.a"}, MaxAge: time.Minute, MaxBytes: 1 << 20, MaxMsgSize: 1 << 10, MaxMsgsPerSubject: 10,
		Duplicates: time.Minute, Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld, AllowDirect: true, Replicas: 1,
	}
	var said bytes.Buffer
	o := stream.Options{Config: older, Log: slog.New(slog.NewTextHandler(&said, nil))}
	after := func() jetstream.StreamConfig {
		t.Helper()
		told, err := stream.EnsureStream(t.Context(), js, o)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		got := stream.CachedInfo().Config
		if told.MaxBytes != got.MaxBytes || !reflect.DeepEqual(told.Subjects, got.Subjects) {
			t.Errorf("told %+v, is %+v", told, got)
		}
		return got
	}
	if got := after(); !reflect.DeepEqual(got, before) {
		t.Errorf("an older version changed\n%+v to\n%+v", before, got)
	}
	for _, want := range []string{"subject s.later", "max_age 1h0m0s", "max_bytes 2097152", "max_msg_size 2048", "max_msgs_per_subject -1", "duplicate_window 5m0s"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("not a word of %q: %s", want, &said)
		}
	}
	o.Config.Subjects, o.Config.MaxBytes, o.Config.AllowAtomicPublish = []string{"s.a", "s.b"}, 4<<20, true
	o.Config.MaxAge, o.Configured = time.Minute, stream.AgeBound
	got := after()
	if want := []string{"s.a", "s.later", "s.b"}; !reflect.DeepEqual(got.Subjects, want) || got.MaxBytes != 4<<20 || !got.AllowAtomicPublish ||
		got.MaxMsgSize != 2<<10 || got.Compression != jetstream.S2Compression || got.Metadata["later"] != "1" {
		t.Errorf("what is missing was not just added: %+v", got)
	}
	if got.MaxAge != time.Minute || got.Duplicates != time.Minute {
		t.Errorf("does not follow its configuration: %v, ids known for %v", got.MaxAge, got.Duplicates)
	}
	if !strings.Contains(said.String(), "a stream was changed") {
		t.Errorf("no word of the change: %s", &said)
	}
}

// raisedMeanwhile simulates another replica that raises a stream just after this replica has looked at it.
type raisedMeanwhile struct {
	jetstream.JetStream
	t  *testing.T
	to jetstream.StreamConfig
}

// Stream implements jetstream.JetStream.
func (r raisedMeanwhile) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := r.JetStream.Stream(ctx, name)
	if _, err := r.UpdateStream(ctx, r.to); err != nil {
		r.t.Error(err)
	}
	return s, err
}

// TestStreamRaisedMeanwhileStaysRaised checks that a replica does not lower a stream that another replica has raised
// since it looked: the server would delete the oldest jobs.
func TestStreamRaisedMeanwhileStaysRaised(t *testing.T) {
	js := natstest.JetStream(t)
	cfg := jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage,
		Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, MaxMsgsPerSubject: 10, MaxMsgSize: 1 << 10,
	}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	higher := cfg
	higher.MaxMsgsPerSubject, higher.Subjects = 100, []string{"s", "s.higher"}
	cfg.MaxMsgsPerSubject, cfg.MaxMsgSize = 20, 2<<10
	told, err := stream.EnsureStream(t.Context(), raisedMeanwhile{js, t, higher}, stream.Options{Config: cfg})
	if err != nil {
		t.Fatal(err)
	}
	now, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []jetstream.StreamConfig{now.CachedInfo().Config, *told} {
		if c.MaxMsgsPerSubject != 100 || c.MaxMsgSize != 2<<10 || !slices.Equal(c.Subjects, higher.Subjects) {
			t.Errorf("it has %d messages of a subject, of %d bytes, and the subjects %q", c.MaxMsgsPerSubject, c.MaxMsgSize, c.Subjects)
		}
	}
}

// TestNewerSchemaIsRefused checks that a stream or bucket that a later version has written stays as it is, and that the
// error says which version to start.
func TestNewerSchemaIsRefused(t *testing.T) {
	js := natstest.Connect(t, natstest.Start(t, t.TempDir(), 0))
	cfg := jetstream.StreamConfig{Name: "KV_b", Subjects: []string{"$KV.b.>"}, Storage: jetstream.FileStorage, MaxMsgsPerSubject: 1}
	cfg.Metadata = map[string]string{stream.MetaSchema: fmt.Sprint(stream.Schema + 1)}
	made, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	_, ofStream := stream.EnsureStream(t.Context(), js, stream.Options{Config: jetstream.StreamConfig{Name: "KV_b", Subjects: []string{"s"}}})
	_, ofBucket := stream.EnsureBucket(t.Context(), js, jetstream.KeyValueConfig{Bucket: "b", History: 8}, nil)
	for _, err := range []error{ofStream, ofBucket} {
		if err == nil || !strings.Contains(err.Error(), "KV_b: a later version of weir has written it (weir.schema 3, this one reads 2)") {
			t.Errorf("refused with %v", err)
		}
	}
	if now, err := js.Stream(t.Context(), "KV_b"); err != nil || !reflect.DeepEqual(now.CachedInfo().Config, made.CachedInfo().Config) {
		t.Errorf("it has become %+v: %v", now.CachedInfo().Config, err)
	}
}

// TestMetadataFollowsTheStream checks that streams have the metadata for NATS' checks. Changes by hand stay, except for
// the number of replicas.
func TestMetadataFollowsTheStream(t *testing.T) {
	js := natstest.Connect(t, natstest.Start(t, t.TempDir(), 0))
	o := stream.Options{Kind: "letters", Config: jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Storage: jetstream.FileStorage, Replicas: 1}}
	for _, c := range []struct{ before, want map[string]string }{
		{nil, map[string]string{"io.nats.monitor.enabled": "1", stream.MetaKind: "letters", stream.MetaSchema: fmt.Sprint(stream.Schema)}},
		{
			map[string]string{"io.nats.monitor.enabled": "0", "io.nats.monitor.peer-expect": "3", stream.MetaSchema: "0", "mine": "x"},
			map[string]string{"io.nats.monitor.enabled": "0", stream.MetaKind: "letters", stream.MetaSchema: fmt.Sprint(stream.Schema), "mine": "x"},
		},
	} {
		if c.before != nil {
			o.Config.Metadata = c.before
			if _, err := js.UpdateStream(t.Context(), o.Config); err != nil {
				t.Fatal(err)
			}
			o.Config.Metadata = nil
		}
		got, err := stream.EnsureStream(t.Context(), js, o)
		if err != nil {
			t.Fatal(err)
		}
		maps.DeleteFunc(got.Metadata, func(name, _ string) bool { return strings.HasPrefix(name, "_nats") })
		if !maps.Equal(got.Metadata, c.want) {
			t.Errorf("%v becomes %v, want %v", c.before, got.Metadata, c.want)
		}
	}
}

// TestBucketIsOnlyAddedTo checks the same as TestStreamIsOnlyAddedTo for a key-value bucket.
func TestBucketIsOnlyAddedTo(t *testing.T) {
	p := openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	js := p.queue.js
	for _, cfg := range []jetstream.KeyValueConfig{
		{Bucket: "b", History: 1, MaxValueSize: 1 << 10},
		{Bucket: "b", History: 8, MaxValueSize: 4 << 10, LimitMarkerTTL: time.Hour},
		{Bucket: "b", History: 1, MaxValueSize: 1 << 10},
	} {
		if _, err := stream.EnsureBucket(t.Context(), js, cfg, nil); err != nil {
			t.Fatal(err)
		}
	}
	kv, err := stream.EnsureBucket(t.Context(), js, jetstream.KeyValueConfig{Bucket: "b"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if status.History() != 8 || status.LimitMarkerTTL() != time.Hour {
		t.Errorf("keeps %d values, marks for %v", status.History(), status.LimitMarkerTTL())
	}
}

// TestPartitionsAreOneNumber checks that two replicas with different settings that create a new api at the same moment
// agree on the number of partitions.
func TestPartitionsAreOneNumber(t *testing.T) {
	p := openTestPartition(t, natstest.Start(t, t.TempDir(), 0))
	for api := range 40 {
		var numbers [2]int
		var both sync.WaitGroup
		for i, want := range []int{1, 3} {
			both.Go(func() {
				var err error
				numbers[i], _, err = ensureQueue(t.Context(), p.queue.js, Settings{
					StreamSettings: StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: fmt.Sprint("api", api), Partitions: want, Capacity: 5, MaxBody: 1 << 10,
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		await.Return(t, "both replicas", both.Wait)
		if numbers[0] != numbers[1] {
			t.Errorf("one has %d partitions, the other %d", numbers[0], numbers[1])
		}
	}
}

// TestPartitionsOfAnyStreamCount checks that an api keeps its number of partitions if the stream of the first partition
// was deleted and the setting is another number: the jobs of the other partitions would never be read.
func TestPartitionsOfAnyStreamCount(t *testing.T) {
	js := natstest.JetStream(t)
	settings := Settings{
		StreamSettings: StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 3, Capacity: 5, MaxBody: 1 << 10,
	}
	other := settings
	other.API, other.Partitions = "pay_2", 4 // the names of its streams begin as those of pay
	for _, s := range []Settings{other, settings} {
		if n, _, err := ensureQueue(t.Context(), js, s); n != s.Partitions || err != nil {
			t.Fatalf("api %s has %d partitions, %v", s.API, n, err)
		}
	}
	if err := js.DeleteStream(t.Context(), StreamName("pay", 0)); err != nil {
		t.Fatal(err)
	}
	settings.Partitions = 2
	for range 2 {
		if n, _, err := ensureQueue(t.Context(), js, settings); n != 3 || err != nil {
			t.Errorf("the api has %d partitions, %v", n, err)
		}
	}
	for p := range 3 {
		made, err := js.Stream(t.Context(), StreamName("pay", p))
		if err != nil {
			t.Fatal(err)
		}
		if n := partitionsIn(&made.CachedInfo().Config); n != 3 {
			t.Errorf("partition %d says that there are %d", p, n)
		}
	}
}

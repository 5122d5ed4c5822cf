package limitstate

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"weir/bucket"
	"weir/ingest/await"
)

// TestCheckpointCoversWhatIsGranted checks that limits that the process counts grant a slot, and that the checkpoint
// which is stored by then has it: after a kill it is not granted again.
func TestCheckpointCoversWhatIsGranted(t *testing.T) {
	o := serverForLimits(t)
	o.Caller = caller{}
	key := bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}, InFlight: 10, Capacity: 10}
	hourly := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}}
	rules := bucket.Rules{Key: key, Shared: []bucket.Limit{hourly}}
	limits, store, err := openUnit(t.Context(), o, unit{name: "pay", apis: []string{"pay"}, rules: rules}, nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = limits.Run(t.Context()) }()
	isGranted := func(m *bucket.Memory) bool {
		answers, err := m.Reserve(t.Context(), []bucket.Ask{{Key: "k", Limits: key, Want: 1, Horizon: 10 * time.Millisecond}})
		if err != nil {
			t.Fatal(err)
		}
		return len(answers[0].Grants) > 0
	}
	await.Until(t, "a slot", func() bool { return isGranted(store) })

	stored, err := limits.state.(*checkpointer).last(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var s bucket.Snapshot
	if err := json.Unmarshal(stored.Data, &s); err != nil {
		t.Fatal(err)
	}
	next, err := bucket.NewMemory(rules, o.Clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	next.Restore(s)
	if next.Saved(next.Checkpoint(time.Minute)); isGranted(next) {
		t.Errorf("after a kill the only slot of an hour is granted again: the checkpoint was %s", stored.Data)
	}
}

// TestCheckpointIsTakenByALaterOneOnly checks that a worker ends if another process has stored a checkpoint after the
// worker's own. The worker does not end if the server shows an older checkpoint, or one of its own that it had given
// up.
func TestCheckpointIsTakenByALaterOneOnly(t *testing.T) {
	o := serverForLimits(t)
	open := func() *checkpointer {
		rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1}, InFlight: 1, Capacity: 10}}
		store, err := bucket.NewMemory(rules, func() bucket.Micros { return bucket.MicrosOf(time.Now()) })
		if err != nil {
			t.Fatal(err)
		}
		c, err := newCheckpointer(t.Context(), o, testUnit("other", store), store)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	put := func(c *checkpointer, text string, want error) {
		t.Helper()
		if err := c.put(t.Context(), []byte(text)); !errors.Is(err, want) || want == nil && err != nil {
			t.Fatalf("%s was put: %v, want %v", text, err, want)
		}
	}
	c := open()
	put(c, `{"a":1}`, nil)
	put(c, `{"a":2}`, nil)

	// Two attempts were given up on their way, and the first of them was stored all the same.
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	for _, text := range []string{`{"a":3}`, `{"a":4}`} {
		if c.put(given, []byte(text)) == nil {
			t.Fatal("it was put")
		}
	}
	if _, err := o.Control.Update(t.Context(), c.key(), []byte(`{"a":3}`), c.revision); err != nil {
		t.Fatal(err)
	}
	if err := c.put(t.Context(), []byte(`{"a":5}`)); err == nil || errors.Is(err, errCheckpointTaken) {
		t.Fatalf("it found its own: %v", err)
	}
	put(c, `{"a":5}`, nil)

	// The server is set back to a state before all of these.
	last := c.own
	c.own, c.revision = last+100, last+100
	if err := c.put(t.Context(), []byte(`{"a":6}`)); err == nil || errors.Is(err, errCheckpointTaken) {
		t.Fatalf("it found an older one: %v", err)
	}
	put(c, `{"a":6}`, nil)

	// Another process takes over. It reads from the leader, because direct reads, which a lagging replica would answer,
	// are not allowed.
	stream, err := o.JetStream.Stream(t.Context(), "KV_"+o.Control.Bucket())
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := o.JetStream.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	put(open(), `{"a":7}`, nil)
	put(c, `{"a":8}`, errCheckpointTaken)
	cfg.AllowDirect = true
	if _, err := o.JetStream.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

package takeover

import (
	"context"
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// TestPaceOfAPartitionThatComesBack checks a key that this replica called, then another replica, and then this one
// again. The key continues from the other replica's calls, even if this replica's store still knows the key. This
// replica's own calls cost the key nothing more.
func TestPaceOfAPartitionThatComesBack(t *testing.T) {
	d := newEnv(t)
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 4}, InFlight: 4}}
	store, err := bucket.NewMemory(rules, d.Now)
	if err != nil {
		t.Fatal(err)
	}
	w := newRig(d, payQueue(t, d), &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules})
	w.pace = NewPace(w.Lane, func(key string) bucket.Micros { tat, _ := store.TAT(key); return tat })
	w.Sched = schedule.New(&schedule.Policy{Rules: rules}, schedule.Pace{}, w.pace.KnownLocked)
	got, err := store.Reserve(t.Context(), []bucket.Ask{{Key: "k", Limits: rules.Key, Want: 3, Horizon: time.Second}})
	if err != nil || len(got[0].Grants) != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	now := time.Now()
	record := func(instance string, hours int) {
		data, _ := json.Marshal(ledger.Record{API: "pay", Key: "k", Planned: now, Started: now, TAT: bucket.MicrosOf(now.Add(time.Duration(hours) * time.Hour)), Instance: instance})
		if _, err := d.JS.Publish(context.WithoutCancel(t.Context()), (&ledger.Record{API: "pay", Key: "k"}).Subject(), data); err != nil {
			t.Fatal(err)
		}
	}
	wait := func() time.Duration {
		q := &schedule.KeyQueue{Key: "k", Limits: &rules.Key}
		q.TAT = w.pace.KnownLocked("k")
		slot, err := w.pace.Recall(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := w.pace.Recall(t.Context(), q); err != nil || again != 0 {
			t.Errorf("asked again: %v, %v", again, err)
		}
		return w.Now().Until(slot)
	}
	record("weir-0", 3)
	before := w.pace.KnownLocked("k")
	if d := wait(); d > 0 || w.pace.KnownLocked("k") != before {
		t.Errorf("after its own calls the next is in %v", d)
	}
	record("weir-1", 4)
	if d := wait(); d < 50*time.Minute {
		t.Errorf("after another replica's call, the fourth of the burst, the next is in %v", d)
	}
}

// TestPaceWhereTheNewestRecordIsTorn checks that a key whose newest record is unreadable waits as if its call had been
// made just now, and is then called.
func TestPaceWhereTheNewestRecordIsTorn(t *testing.T) {
	for _, others := range []bool{true, false} {
		d := newEnv(t)
		if !others {
			d.Shared = false
		}
		rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 4}, InFlight: 4}}
		w := newRig(d, payQueue(t, d), &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules})
		w.pace = NewPace(w.Lane, func(string) bucket.Micros { return 0 })
		w.Sched = schedule.New(&schedule.Policy{Rules: rules}, schedule.Pace{}, w.pace.KnownLocked)
		if _, err := d.JS.Publish(t.Context(), (&ledger.Record{API: "pay", Key: "k"}).Subject(), []byte("{")); err != nil {
			t.Fatal(err)
		}
		q := &schedule.KeyQueue{Key: "k", Limits: &rules.Key}
		slot, err := w.pace.Recall(t.Context(), q)
		if wait := w.Now().Until(slot); err != nil || wait < 50*time.Minute || wait > time.Hour {
			t.Errorf("beside others %v: the next call is in %v, %v", others, wait, err)
		}
		if again, err := w.pace.Recall(t.Context(), q); err != nil || again != 0 {
			t.Errorf("beside others %v: asked again: %v, %v", others, again, err)
		}
	}
}

// TestPaceBehindAGap checks a key whose newest record is damaged while an older one is readable. The older one does not
// count as the newest: the key waits as if it had been called now, and the owner reports the damage.
func TestPaceBehindAGap(t *testing.T) {
	dir := t.TempDir()
	ns := natstest.Start(t, dir, 0)
	open := func() *lane.Env {
		js := natstest.Connect(t, ns)
		d := newEnvOn(t, js)
		d.Shared = false
		return d
	}
	d, now := open(), time.Now()
	for _, key := range []string{"k", "other"} {
		for _, detail := range []string{"", "the newest of " + key} {
			tat := bucket.MicrosOf(now)
			data, err := json.Marshal(ledger.Record{API: "pay", Key: key, Planned: now, Started: now, TAT: tat, Detail: detail})
			if err == nil {
				_, err = d.JS.Publish(t.Context(), (&ledger.Record{API: "pay", Key: key}).Subject(), data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	ns.Shutdown()
	ns.WaitForShutdown()
	natstest.Spoil(t, dir, ledger.CallsStream, "the newest of k")
	ns = natstest.Start(t, dir, 0)
	d = open()
	var told []lane.StreamChange
	d.Changed = func(c lane.StreamChange) { told = append(told, c) }
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: 5 * time.Minute, Burst: 1}, InFlight: 4}}
	w := newRig(d, payQueue(t, d), &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules})
	if _, err := d.Tail.Read(t.Context(), ledger.TailOptions{
		JetStream: d.JS, Dedupe: time.Hour, APIs: []string{"pay"}, Now: d.Now, Wants: func(string, string) bool { return true },
		Ended: func(string, []queue.Finished) {}, TATOf: func(c *ledger.Record, _, _ time.Time) bucket.Micros { return c.TAT },
	}); err != nil {
		t.Fatal(err)
	}
	w.pace = NewPace(w.Lane, func(string) bucket.Micros { return 0 })
	w.Sched = schedule.New(&schedule.Policy{Rules: rules}, schedule.Pace{}, w.pace.KnownLocked)
	for key, waits := range map[string]bool{"k": true, "other": false} {
		q := &schedule.KeyQueue{Key: key, Limits: &rules.Key}
		q.TAT = w.pace.KnownLocked(key)
		if _, err := w.pace.Recall(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if got := w.Now().Until(q.TAT) > 4*time.Minute; got != waits {
			t.Errorf("%s waits for %v", key, w.Now().Until(q.TAT))
		}
	}
	if len(told) != 1 || told[0].Stream != ledger.CallsStream {
		t.Errorf("told %+v", told)
	}
}

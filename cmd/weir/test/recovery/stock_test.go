package recovery

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"weir/bucket/queue"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/store"

	"github.com/nats-io/nats.go/jetstream"
)

// stockYAML is an api whose keys are called once a day: what is sent twice waits.
const stockYAML = "apis:\n  pay:\n    url: %s\n    bucket: {rate: 1/24h, capacity: 50}\n"

// fillStock submits jobs to a key of each partition: the first is called, five wait. It returns the keys, by partition.
func fillStock(r *weirtest.Rig) (keys [4]string) {
	for i := 0; slices.Contains(keys[:], ""); i++ {
		key := fmt.Sprint("k", i)
		if p := queue.PartitionOf(key, 4); keys[p] == "" {
			keys[p] = key
		}
	}
	for _, key := range keys {
		for n := range 6 {
			r.Producer().Send("pay", key, nil, fmt.Sprint("job ", n))
		}
	}
	r.AwaitCalls(4)
	for _, key := range keys {
		r.Eventually("only waiting jobs are left", func() bool { return r.Store().Depth("pay", key) == 5 })
	}
	return keys
}

// tamper changes the streams of partitions 0, 1 and 2 by hand. Partition 3 stays as it is.
func tamper(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	s, err := js.Stream(t.Context(), "WEIR_pay_0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s, err = js.Stream(t.Context(), "WEIR_pay_1"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the last two jobs
		last, err := s.GetLastMsgForSubject(t.Context(), "weir.q.pay.1.j.>")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteMsg(t.Context(), last.Sequence); err != nil {
			t.Fatal(err)
		}
	}
	if err := js.DeleteStream(t.Context(), "WEIR_pay_2"); err != nil {
		t.Fatal(err)
	}
}

// requireStock checks that the jobs that were deleted are told and have letters, and that all others wait.
func requireStock(r *weirtest.Rig, keys [4]string, billed string) {
	r.T.Helper()
	for p, lost := range []int{5, 2, 5, 0} {
		r.Eventually("the letters of "+keys[p], func() bool { return len(r.Store().Letters("pay", keys[p])) >= lost })
		letters := r.Store().Letters("pay", keys[p])
		if len(letters) != lost || r.Store().Depth("pay", keys[p]) != 5-lost {
			r.T.Errorf("partition %d has %d letters and %d jobs", p, len(letters), r.Store().Depth("pay", keys[p]))
		}
		for _, l := range letters {
			if l.Header.Get("Weir-Dead-Reason") != "unknown" || !strings.HasPrefix(l.Header.Get("Weir-Dead-Detail"), "deleted: ") || l.Header.Get("Weir-Dead-Billed") != billed {
				r.T.Errorf("the letter says %v", l.Header)
			}
		}
	}
	events := func() (text string) {
		for _, e := range r.Store().Stored("WEIR_EVENTS", "weir.events.unhealthy.>") {
			text += string(e.Data)
		}
		return text
	}
	out := ""
	for _, said := range []string{
		"WEIR_pay_0: 5 jobs that waited were deleted by hand while weir was stopped", "WEIR_pay_1: 2 jobs that waited were deleted by hand while weir was stopped",
		"WEIR_pay_2: the stream was deleted by hand while weir was stopped, and is made again, empty; 5 jobs that waited",
	} {
		r.Eventually("an event: "+said, func() bool { return strings.Contains(events(), said) })
		out, _ = r.CLI().Run("status", "--json")
		if _, what, _ := strings.Cut(said, ": "); !strings.Contains(out, what) {
			r.T.Errorf("status does not say %q: %s", said, out)
		}
	}
	if strings.Contains(out, `"stream": "WEIR_pay_3"`) {
		r.T.Errorf("status: %s", out)
	}
}

// TestJobsDeletedWhileStoppedBecomeLetters: jobs that were taken out of their queues by hand while weir was stopped
// become letters, and are told by name and number. A second start tells nothing again. The stream that was deleted begins
// behind its former jobs.
func TestJobsDeletedWhileStoppedBecomeLetters(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, stockYAML)
	t.Cleanup(r.Stop)
	r.Start()
	keys := fillStock(r)
	r.Stop()
	r.Offline(func(o *store.Offline) { tamper(t, o.JS) })
	r.Start()
	requireStock(r, keys, "no")
	if s, err := r.JS.Stream(t.Context(), "WEIR_pay_2"); err != nil || s.CachedInfo().State.FirstSeq < 1<<20 {
		t.Errorf("the stream that was deleted begins at %d: %v", s.CachedInfo().State.FirstSeq, err)
	}
	told := len(r.Store().Stored("WEIR_EVENTS", "weir.events.unhealthy.>"))
	r.Stop()
	r.Start()
	r.Producer().Send("pay", "another", nil, "a job")
	r.AwaitCalls(5)
	if now := len(r.Store().Stored("WEIR_EVENTS", "weir.events.unhealthy.>")); now != told {
		t.Errorf("%d events of changed streams after a second start, %d before", now, told)
	}
	for p, lost := range []int{5, 2, 5, 0} {
		if n := len(r.Store().Letters("pay", keys[p])); n != lost {
			t.Errorf("partition %d has %d letters after a second start", p, n)
		}
	}
}

// TestJobsDeletedAfterAKillBecomeLetters: the same after weir was killed, with what it had noted of its queues.
func TestJobsDeletedAfterAKillBecomeLetters(t *testing.T) {
	t.Parallel()
	r := weirtest.ReadyRig(t, fakeapi.Options{}, stockYAML)
	t.Cleanup(r.Stop)
	r.Start()
	keys := fillStock(r)
	var noted []byte
	for p := range keys {
		key := fmt.Sprintf("queue.WEIR_pay_%d", p)
		r.Eventually("a note of what waits", func() bool {
			entry, err := r.Control().Get(t.Context(), key)
			if err == nil {
				noted = entry.Value()
			}
			return err == nil && strings.Contains(string(noted), `"count":5`)
		})
	}
	notes := map[string][]byte{}
	for p := range keys {
		key := fmt.Sprintf("queue.WEIR_pay_%d", p)
		entry, err := r.Control().Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		notes[key] = entry.Value()
	}
	r.Stop()
	r.Offline(func(o *store.Offline) { // a kill leaves the last note of those that are made while weir runs
		kv, err := o.JS.KeyValue(t.Context(), "weir_control")
		if err != nil {
			t.Fatal(err)
		}
		for key, note := range notes {
			if _, err := kv.Put(t.Context(), key, note); err != nil {
				t.Fatal(err)
			}
		}
		tamper(t, o.JS)
	})
	r.Start()
	requireStock(r, keys, "unknown")
}

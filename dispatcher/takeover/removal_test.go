package takeover

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/queue"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/ingest"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// removalRig is a worker with a partition. Its letters are stored until the test ends.
func removalRig(t *testing.T) (w *rig, p *Takeover, told *[]lane.StreamChange) {
	t.Helper()
	d := newEnv(t)
	d.Shared = false
	told = &[]lane.StreamChange{}
	d.Changed = func(c lane.StreamChange) { *told = append(*told, c) }
	letters, err := deadletter.Open(t.Context(), deadletter.Options{
		Conn: d.Conn, JetStream: d.JS, Replicas: 1, MaxAge: time.Hour, MaxBytes: 1 << 20, MaxWaiting: 1 << 20, Log: d.Log,
		Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	d.Letters = letters
	q := payQueue(t, d)
	markers, err := q.Partitions()[0].Own(t.Context(), "me")
	if err != nil {
		t.Fatal(err)
	}
	var writers errgroup.Group
	writing, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	writers.Go(func() error { return letters.Run(writing) })
	writers.Go(func() error { return markers.Run(writing) })
	t.Cleanup(func() { stop(); _ = await.Result(t, "the end of the writers", writers.Wait) })
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}}
	w = newRig(d, q, &httpcall.API{
		Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay", MaxBody: 1 << 10, Methods: []string{"POST"}}, Rules: rules,
	})
	p = w.opened(ownership.Tenure{})
	p.Markers, p.Open, w.Partitions = markers, true, []*lane.Owned{p.Owned}
	return w, p, told
}

// storedLetters returns all letters that are stored.
func storedLetters(t *testing.T, w *lane.Lane) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	s, err := w.Env.JS.Stream(t.Context(), deadletter.Stream)
	if err != nil {
		t.Fatal(err)
	}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// TestJobsTakenOutBecomeLetters checks that a job whose message was deleted by hand is not called, even if its body is
// in memory, and becomes a letter with everything known about it. A running call continues, and a job whose message is
// still there waits.
func TestJobsTakenOutBecomeLetters(t *testing.T) {
	w, p, told := removalRig(t)
	for seq := uint64(10); seq < 15; seq++ {
		w.Sched.Push("k", seq, &p.Partition)
	}
	w.Sched.PushEarly("later", 15, &p.Partition, bucket.Normal, w.Now(), w.Now().Add(time.Hour))
	flying := lane.JobLocked(w.Sched.Extract(w.Sched.Queues.Find("k"), 10))
	flying.Settle()
	p.Cache.KeepLocked(queue.Entry{Seq: 11, Key: "k", Header: nats.Header{ingest.HeaderJobID: {"eleven"}}, Data: []byte("the body"), Time: time.Now()})
	p.removals.removed(t.Context(), queue.Removal{Seqs: []uint64{7, 10, 11, 12, 15}, Unread: map[uint64]string{16: "unread"}})
	await.Return(t, "the letters", w.Running.Wait)
	seqs := map[string]string{}
	for _, m := range storedLetters(t, w.Lane) {
		detail := m.Header.Get("Weir-Dead-Detail")
		seqs[m.Header.Get("Weir-Key")+detail[:len("deleted: message 11")][len("deleted: message"):]] =
			m.Header.Get("Weir-Dead-Reason") + m.Header.Get("Weir-Dead-Body") + string(m.Data) + m.Header.Get(ingest.HeaderJobID)
	}
	for of, want := range map[string]string{"k 11": "unknownthe bodyeleven", "k 12": "unknownleft out", "later 15": "unknownleft out", "unread 16": "unknownleft out"} {
		if seqs[of] != want {
			t.Errorf("the letter of %s is %q, want %q", of, seqs[of], want)
		}
	}
	if len(seqs) != 4 {
		t.Errorf("there are letters of %v", seqs)
	}
	if left := slices.Collect(w.Sched.Queues.Find("k").Seqs); !slices.Equal(left, []uint64{10, 13, 14}) || w.Sched.Queues.Find("later") != nil && !w.Sched.Queues.Find("later").Empty() {
		t.Errorf("what is left in the queue: %v", left)
	}
	if !p.IsRemovedLocked(10) || p.IsRemovedLocked(7) || p.IsRemovedLocked(12) {
		t.Errorf("held for gone: %v", p.Removed)
	}
	if len(*told) != 1 || (*told)[0].Stream != "WEIR_pay_0" {
		t.Errorf("told: %+v", *told)
	}
}

// TestRemovalsAreAwaited checks that a tenure can wait for the letters of deleted jobs, and that the wait ends with its
// context.
func TestRemovalsAreAwaited(t *testing.T) {
	w, p, _ := removalRig(t)
	p.removals.telling.Lock() // no removal is reported until it is unlocked
	p.removals.removed(t.Context(), queue.Removal{Unread: map[uint64]string{16: "unread"}})
	ended, end := context.WithCancel(t.Context())
	end()
	if err := p.AwaitRemovals(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("before the letter is stored: %v", err)
	}
	p.removals.telling.Unlock()
	if err := await.Result(t, "the letter", func() error { return p.AwaitRemovals(t.Context()) }); err != nil {
		t.Error(err)
	}
	if n := len(storedLetters(t, w.Lane)); n != 1 {
		t.Errorf("%d letters are stored", n)
	}
}

// TestStopEndsRenewal checks that the renewal of an epoch ends when the worker stops, if the right to the partition is in
// doubt and never comes back.
func TestStopEndsRenewal(t *testing.T) {
	w, p, _ := removalRig(t)
	registry, err := lease.OpenRegistry(t.Context(), w.Env.JS, 1)
	if err != nil {
		t.Fatal(err)
	}
	if p.Lease, err = registry.Join(t.Context(), lease.Member{Instance: "weir-0"}); err != nil {
		t.Fatal(err)
	}
	if err := p.Lease.End(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(w.Stopping)
	await.Return(t, "the renewal", func() { p.removals.renewEpoch(context.WithoutCancel(t.Context())) })
}

// TestMarkersTakenOutAreStoredAgain checks that the epoch, a hold and the intent of a call whose job is still there are
// stored again. The intent of a job that is gone is not.
func TestMarkersTakenOutAreStoredAgain(t *testing.T) {
	w, p, _ := removalRig(t)
	ahead := bucket.Micros(0).Add(10 * time.Minute)
	w.Env.Ahead = func() bucket.Micros { return ahead } // the wall clock was set
	w.Sched.Push("k", 10, &p.Partition)
	w.Sched.Push("gone", 11, &p.Partition)
	for key, seq := range map[string]uint64{"k": 10, "gone": 11} {
		j := lane.JobLocked(w.Sched.Extract(w.Sched.Queues.Find(key), seq))
		j.Bind(w.Terms)
		intends(j, 3, 1)
		j.Settle()
	}
	until := w.Now().Add(time.Hour)
	w.notes.Marks["held"] = lane.HoldMark{Part: p.Owned, Seq: 4, Until: until}
	js := w.Env.JS
	s, err := js.Stream(t.Context(), "WEIR_pay_0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.removals.removed(t.Context(), queue.Removal{Epoch: true, Seqs: []uint64{3, 4, 11}})
	await.Return(t, "what is stored", w.Running.Wait)
	var intents []queue.Intent
	var held queue.RetryMark
	await.Until(t, "the markers", func() bool {
		intents, held = nil, queue.RetryMark{}
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
			m, err := s.GetMsg(t.Context(), seq)
			if err != nil {
				t.Fatal(err)
			}
			e := queue.Entry{Data: m.Data}
			if i, err := e.Intents(); err == nil {
				intents = append(intents, i...)
			} else if r, err := e.RetryMark(); err == nil {
				held = r
			}
		}
		return len(intents) > 0 && held.Key != ""
	})
	if len(intents) != 1 || intents[0].Seq != 10 || intents[0].Call != 1 || intents[0].Idempotency != "Key@0~1" || intents[0].Epoch != p.Markers.Epoch() || p.Markers.Epoch() < 2 {
		t.Errorf("the intents are %+v, the epoch %d", intents, p.Markers.Epoch())
	}
	if held.Key != "held" || held.NotBefore != until+ahead {
		t.Errorf("the hold is %+v, want it until %d by the wall clock", held, until+ahead)
	}
}

// intends notes an intent as stored.
func intends(j *lane.Job, seq uint64, call int) {
	j.Announced.Marks, j.Announced.Call, j.Announced.By, j.Announced.As = []*lane.IntentMark{{Seq: seq, Users: 1}}, call, j.Terms, "Key@0~1"
}

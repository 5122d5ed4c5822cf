package fleet

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
	"weir/dispatcher/settle"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// replica is a board with the teller of one api, and a schedule without a dispatcher.
type replica struct {
	*Board
	*Teller
}

// newReplica returns a replica whose clock is wrong by off, and which does not run.
func newReplica(js jetstream.JetStream, kv jetstream.KeyValue, name string, off time.Duration) *replica {
	now := func() bucket.Micros { return bucket.MicrosOf(time.Now().Add(off)) }
	log := slog.New(slog.DiscardHandler)
	b := NewBoard(Options{JetStream: js, Control: kv, Instance: name, Session: name, Now: now, Replicas: func() int { return 3 }, Log: log})
	rate := bucket.KeyLimits{Rate: bucket.Rate{Count: 100, Per: time.Second, Burst: 1}, Capacity: 10, InFlight: 1}
	policy := &schedule.Policy{
		Rules: bucket.Rules{Key: rate}, Retry: schedule.Retry{Min: 100 * time.Millisecond, Max: time.Second, HoldAPI: true},
		Breaker: schedule.BreakerPolicy{Failures: 1, Min: 50 * time.Millisecond, Max: 50 * time.Millisecond},
	}
	l := &lane.Lane{
		Env: &lane.Env{}, Name: "pay", Log: log, Now: now, Wake: make(chan struct{}, 1),
		Sched: schedule.New(policy, schedule.Pace{Common: true, MaxCalls: 1, MaxStaged: 1}, func(string) bucket.Micros { return 0 }),
	}
	return &replica{Board: b, Teller: b.Join(l, settle.NewHoldNotes(l))}
}

// startReplica starts such a replica.
func startReplica(t *testing.T, js jetstream.JetStream, kv jetstream.KeyValue, name string, off time.Duration) *replica {
	t.Helper()
	r := newReplica(js, kv, name, off)
	r.start(t)
	return r
}

// start runs the replica until the test ends, and waits until it has read the entries.
func (r *replica) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop := r.Start(ctx)
	t.Cleanup(func() { stop(); cancel(); await.Return(t, "the end of a board", running.Wait) })
	if err := r.AwaitRead(await.Context(t, "the entries")); err != nil {
		t.Fatal(err)
	}
}

// end ends a call of the replica.
func (r *replica) end(e schedule.CallEnd) {
	r.Mu.Lock()
	e.Now = r.Teller.Now()
	e.Started, e.Sent = e.Now, true
	q := r.Sched.Queue("key", &schedule.Partition{Open: true})
	r.Sched.OnCallEnd(&schedule.Job{Queue: q, Seq: 1, Policy: r.Sched.Policy()}, e)
	unsaid := r.Sched.Findings.HasUnsaid()
	r.Mu.Unlock()
	r.Look(unsaid, 0)
}

// held returns for how long the api is still held here.
func (r *replica) held() time.Duration {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	holds, _ := r.Sched.At(r.Teller.Now()).Holds(1)
	if len(holds) == 0 {
		return 0
	}
	return holds[0].Until.Sub(r.Teller.Now().Time())
}

func (r *replica) awaitsProbe() (turn int64) {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	turn, _ = r.Sched.Findings.AwaitsProbe()
	return turn
}

func (r *replica) hasClaim() bool {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	return r.Sched.Findings.HasClaim()
}

// pump steps the schedule as the dispatcher does, and reports whether a job is made ready.
func (r *replica) pump() bool {
	r.Mu.Lock()
	fx := r.Sched.Step(r.Teller.Now())
	unsaid := r.Sched.Findings.HasUnsaid()
	r.Mu.Unlock()
	r.Look(unsaid || fx.Unclaim, fx.Claim)
	return len(fx.Load) > 0
}

// push adds a job that may be called.
func (r *replica) push() {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.Sched.Allow(true)
	r.Sched.Push("key", 1, &schedule.Partition{Open: true})
}

func control(t *testing.T) (jetstream.JetStream, jetstream.KeyValue) {
	t.Helper()
	js := natstest.JetStream(t)
	kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "weir_control"})
	if err != nil {
		t.Fatal(err)
	}
	return js, kv
}

// TestWrongClocksShareHolds checks that replicas whose clocks are hours apart hold for the same time, and so does one
// that starts later.
func TestWrongClocksShareHolds(t *testing.T) {
	js, kv := control(t)
	first, ahead := startReplica(t, js, kv, "first", 0), startReplica(t, js, kv, "ahead", 5*time.Hour)
	began := time.Now()
	first.end(schedule.CallEnd{PushedBack: true, Detail: "429", Hold: schedule.Advice{Wait: time.Hour}})
	await.Until(t, "the hold at the other replica", func() bool { return ahead.held() > 0 })
	late := startReplica(t, js, kv, "late", -5*time.Hour)
	for what, held := range map[string]time.Duration{"ahead": ahead.held(), "late": late.held()} {
		passed := time.Since(began)
		if held < time.Hour-passed-time.Second || held > time.Hour+passed+time.Second {
			t.Errorf("%s: the hold of an hour lasts %v after %v", what, held, passed)
		}
	}
}

// TestEntriesOfRemovedAPIs checks that a start deletes the old entries of apis that it does not have, and no others.
func TestEntriesOfRemovedAPIs(t *testing.T) {
	js, kv := control(t)
	for _, api := range []string{"pay", "gone", "new"} {
		if _, err := kv.Put(t.Context(), keyOf(api), entry{Turn: 1, Open: true, Replica: "other", Session: "other"}.encode()); err != nil {
			t.Fatal(err)
		}
	}
	b := NewBoard(Options{JetStream: js, Control: kv, Now: func() bucket.Micros { return bucket.MicrosOf(time.Now()) }, Log: slog.New(slog.DiscardHandler)})
	old := b.Now().Add(-3 * schedule.MostHold)
	for _, api := range []string{"pay", "gone", "new"} {
		e, err := kv.Get(t.Context(), keyOf(api))
		if err != nil {
			t.Fatal(err)
		}
		at := old
		if api == "new" {
			at = b.Now()
		}
		b.see(e, at)
	}
	b.tellers["pay"] = &Teller{}
	b.clear(t.Context())
	for api, kept := range map[string]bool{"pay": true, "gone": false, "new": true} {
		if _, err := kv.Get(t.Context(), keyOf(api)); (err == nil) != kept {
			t.Errorf("%s: %v", api, err)
		}
	}
}

// lines counts log lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	return nil
}

func (l *lines) count(part string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, part) {
			n++
		}
	}
	return n
}

// TestLostEntry checks that replicas claim the probe although the entry was lost while the breaker was open, and that
// another replica learns the breaker's state again.
func TestLostEntry(t *testing.T) {
	t.Parallel()
	for what, lose := range map[string]func(t *testing.T, js jetstream.JetStream){
		"purged": func(t *testing.T, js jetstream.JetStream) {
			s, err := js.Stream(t.Context(), "KV_weir_control")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Purge(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"the bucket was made anew": func(t *testing.T, js jetstream.JetStream) {
			if err := js.DeleteKeyValue(t.Context(), "weir_control"); err != nil {
				t.Fatal(err)
			}
			await.Until(t, "a new bucket, for which the server may still be deleting the old one's files", func() bool {
				_, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "weir_control"})
				return err == nil
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			js, kv := control(t)
			for range 5 { // so that the entries' revisions are greater than those of a new bucket
				if _, err := kv.Put(t.Context(), "another", nil); err != nil {
					t.Fatal(err)
				}
			}
			var told lines
			r, other := newReplica(js, kv, "first", 0), startReplica(t, js, kv, "other", 0)
			r.Teller.Log = slog.New(&told)
			r.start(t)
			r.end(schedule.CallEnd{Denied: true, Detail: "401"})
			for _, r := range []*replica{r, other} {
				await.Until(t, "the turn", func() bool { return r.awaitsProbe() == 1 })
			}
			lose(t, js)
			r.push()
			await.Until(t, "the claim", func() bool { r.pump(); return r.hasClaim() })
			await.Until(t, "the other replica to see the claim", func() bool { return other.of("pay").Probing == "first" })
			late := startReplica(t, js, kv, "late", 0)
			if turn := late.awaitsProbe(); turn != 1 {
				t.Errorf("a replica that starts later awaits the probe of the turn %d", turn)
			}
			if n := told.count("were lost"); n != 1 {
				t.Errorf("%d log lines say that the holds were lost", n)
			}
		})
	}
}

// TestWatchForgetsLostEntries checks that a new watch forgets an entry that is gone without a trace.
func TestWatchForgetsLostEntries(t *testing.T) {
	js, kv := control(t)
	if _, err := kv.Put(t.Context(), keyOf("pay"), entry{Turn: 1, Open: true, Denied: true, Replica: "other", Session: "other"}.encode()); err != nil {
		t.Fatal(err)
	}
	e, err := kv.Get(t.Context(), keyOf("pay"))
	if err != nil {
		t.Fatal(err)
	}
	r := newReplica(js, kv, "first", 0)
	r.see(e, r.Board.Now())
	s, err := js.Stream(t.Context(), "KV_weir_control")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { cancel(); await.Return(t, "the end of a board", running.Wait) })
	await.Until(t, "the entry to be forgotten", func() bool { return r.of("pay").revision == 0 })
}

// TestLastFindingIsStored checks that a replica that stops stores what it has found although another replica has written
// since its watch ended, and that it ends the other's claim if it turns the breaker.
func TestLastFindingIsStored(t *testing.T) {
	js, kv := control(t)
	r := newReplica(js, kv, "first", 0)
	if _, err := kv.Put(t.Context(), keyOf("pay"), entry{Turn: 4, Probing: "other", Replica: "other", Session: "other"}.encode()); err != nil {
		t.Fatal(err)
	}
	r.end(schedule.CallEnd{Denied: true, Detail: "401"})
	r.Teller.end(t.Context())
	e, err := kv.Get(t.Context(), keyOf("pay"))
	if err != nil {
		t.Fatal(err)
	}
	if got := read(e.Value()); !got.Denied || got.Turn != 5 || got.Probing != "" {
		t.Errorf("the entry is %+v", got)
	}
}

// TestAwaitReadAwaitsForce checks that an entry does not count as read before it is in force.
func TestAwaitReadAwaitsForce(t *testing.T) {
	js, kv := control(t)
	r := startReplica(t, js, kv, "first", 0)
	r.Mu.Lock() // so that nothing can be put in force
	revision, err := kv.Put(t.Context(), keyOf("pay"), entry{Turn: 1, Open: true, Denied: true, Replica: "other", Session: "other"}.encode())
	if err != nil {
		r.Mu.Unlock()
		t.Fatal(err)
	}
	await.Until(t, "the entry", func() bool { return r.of("pay").revision == revision })
	read := make(chan error, 1)
	go func() { read <- r.AwaitRead(t.Context()) }()
	select {
	case err := <-read:
		t.Errorf("an entry that is not in force counts as read: %v", err)
		r.Mu.Unlock()
		return
	case <-time.After(50 * time.Millisecond):
	}
	r.Mu.Unlock()
	if err := await.Receive(t, "the end of AwaitRead", read); err != nil {
		t.Fatal(err)
	}
	if turn := r.awaitsProbe(); turn != 1 {
		t.Errorf("the breaker's turn in force is %d", turn)
	}
}

// TestServerClock checks that an entry that was written after the server was asked for its time is not taken for older.
func TestServerClock(t *testing.T) {
	js, kv := control(t)
	r := newReplica(js, kv, "first", 0)
	now := bucket.MicrosOf(time.Now())
	r.Board.Now = func() bucket.Micros { return now }
	clock, err := r.serverClock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server := time.Now()
	now = now.Add(time.Hour)
	if age := clock(server.Add(30 * time.Minute)).Until(now); age < 29*time.Minute || age > 31*time.Minute {
		t.Errorf("the entry is %v old", age)
	}
	if at := clock(server.Add(2 * time.Hour)); at != now {
		t.Errorf("an entry of the future was written %v from now", now.Until(at))
	}
}

// TestWriteIsReceivedWhenStored checks that an entry that this process writes does not count as received before it was
// stored: a watch that began in between does not show it.
func TestWriteIsReceivedWhenStored(t *testing.T) {
	js, kv := control(t)
	r := newReplica(js, kv, "first", 0)
	if !r.write(t.Context(), &sighting{}, entry{Turn: 1}, schedule.Finding{Turn: 1}) {
		t.Fatal("the entry is not stored")
	}
	e, err := kv.Get(t.Context(), keyOf("pay"))
	if err != nil {
		t.Fatal(err)
	}
	if s := r.of("pay"); s.received.Before(e.Created()) {
		t.Errorf("the entry was received %v before it was stored", e.Created().Sub(s.received))
	}
}

// TestTroubleIsEnduredPatiently checks that a replica that cannot write an entry reads the entry at most once a second,
// and that it tries ever less often once it probes by itself.
func TestTroubleIsEnduredPatiently(t *testing.T) {
	js, kv := control(t)
	r := newReplica(js, kv, "first", 0)
	r.end(schedule.CallEnd{Denied: true, Detail: "401"})
	r.trouble.since = time.Now().Add(-2 * rereadWait)
	wait := r.endure(t.Context(), &sighting{}, true)
	read := r.trouble.reread
	if wait != writeRetry || read.IsZero() {
		t.Errorf("tries again after %v, and has read the entry at %v", wait, read)
	}
	if r.endure(t.Context(), &sighting{}, true); r.trouble.reread != read {
		t.Error("the entry is read again at once")
	}
	r.trouble.since = time.Now().Add(-2 * claimTerm)
	for _, want := range []time.Duration{2 * writeRetry, 4 * writeRetry, 8 * writeRetry, 16 * writeRetry, mostRetry, mostRetry} {
		if wait := r.endure(t.Context(), &sighting{}, true); wait != want {
			t.Errorf("tries again after %v, want %v", wait, want)
		}
	}
	r.written, r.trouble.revision = time.Now(), 0
	if wait := r.act(t.Context()); wait <= writeRetry {
		t.Errorf("something new makes it try again after %v", wait)
	}
}

package settle

import (
	"context"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/queue"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ownership"
	"weir/dispatcher/schedule"
	"weir/ingest"
	"weir/ingest/await"
)

// TestReloadEnds checks that the worker abandons a settling job whose message is gone. If the partition is lost,
// it does so at once, since the new owner has deleted the message. Otherwise it first has the stream's leader confirm
// that the message is gone.
func TestReloadEnds(t *testing.T) {
	d := newEnvOnServer(t)
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}}
	q, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: d.Conn, JetStream: d.JS, Rules: rules,
		Settings: queue.Settings{StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "pay", Partitions: 1, Capacity: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	markers := writing(t, d, q)
	for _, lost := range []bool{true, false} {
		w := newSettlingRig(d, q, &httpcall.API{Name: "pay", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "pay"}, Rules: rules})
		p := w.opened(ownership.Tenure{})
		p.Markers = markers
		p.Lost.Store(lost)
		j := lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 7, &p.Partition), 7))
		j.Settle()
		w.settler.Unrecorded.Await(j)
		const tried = mostMissing - 2 // as if it had been tried so often
		j.Missing = tried
		if await.Result(t, "the job's end", func() bool { return w.settler.Reload(t.Context(), j) }) {
			t.Fatal("a message was loaded that is not there")
		}
		if want := map[bool]int{true: tried, false: mostMissing}[lost]; j.Missing != want || w.Sched.At(w.Now()).Unfinished() != 0 {
			t.Errorf("lost %t: %d jobs are left when the message was missing %d times, want none after %d", lost, w.Sched.At(w.Now()).Unfinished(), j.Missing, want)
		}
		if want := map[bool]int{true: 0, false: 1}[lost]; w.settler.Unrecorded.unlogged != want || len(w.settler.Unrecorded.jobs) != 0 {
			t.Errorf("lost %t: %d calls are unlogged, want %d; %d records are awaited", lost, w.settler.Unrecorded.unlogged, want, len(w.settler.Unrecorded.jobs))
		}
		await.Return(t, "what the worker runs", w.Running.Wait)
	}
}

// TestReloadTakesRoomOnce checks that a job that is being settled takes room in memory only once, though several steps
// load its message. It would never give a second piece of room back, and if no room were left, it would wait for its
// own.
func TestReloadTakesRoomOnce(t *testing.T) {
	d := newEnvOnServer(t)
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Second, Burst: 1}, InFlight: 4}}
	holdings := queue.NewHoldings(16 << 10) // near a call there is room for one job
	q, err := queue.OpenQueue(t.Context(), queue.Options{
		Conn: d.Conn, JetStream: d.JS, Rules: rules, Holdings: holdings,
		Settings: queue.Settings{StreamSettings: queue.StreamSettings{Replicas: 1, Dedupe: time.Minute}, API: "once", Partitions: 1, Capacity: 10},
	})
	if err != nil {
		t.Fatal(err)
	}
	w := newSettlingRig(d, q, &httpcall.API{Name: "once", URL: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Rule: &ingest.Rule{API: "once", Methods: []string{"POST"}}, Rules: rules})
	p := w.opened(ownership.Tenure{})
	j := lane.JobLocked(w.Sched.Extract(w.Sched.Push("k", 7, &p.Partition), 7))
	j.Settle()
	p.Cache.KeepLocked(queue.Entry{Seq: 7, Key: "k", Header: map[string][]string{ingest.HeaderJobID: {"j"}}, Data: []byte("{}"), Time: time.Now()})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for step := range 3 {
		if !w.settler.Reload(ctx, j) {
			t.Fatalf("step %d: the message was not loaded", step)
		}
	}
	w.Update(func(s *schedule.Schedule) { s.Finished(j.Job) })
	if _, _, near, _ := holdings.Held(); near != 0 {
		t.Errorf("%d bytes of room are left taken", near)
	}
	await.Return(t, "what the worker runs", w.Running.Wait)
}

// TestReloadContainsACrash checks that a message over which weir crashes does not end the process, and that its job
// keeps its id and body for its letter.
func TestReloadContainsACrash(t *testing.T) {
	l := &lane.Lane{Env: &lane.Env{}, Log: slog.New(slog.DiscardHandler), Now: func() bucket.Micros { return 1 }, Wake: make(chan struct{}, 1)}
	api := &httpcall.API{Name: "pay", Rule: &ingest.Rule{API: "pay"}} // reading fails without a method
	l.Terms, l.Sched = &lane.Terms{API: api}, schedule.New(&schedule.Policy{}, schedule.Pace{}, func(string) bucket.Micros { return 0 })
	p := &lane.Owned{W: l}
	p.Of = p
	j := lane.JobLocked(l.Sched.Extract(l.Sched.Push("k", 1, &p.Partition), 1))
	j.Settle()
	w := &Settler{Lane: l}
	w.restore(j, queue.Entry{Seq: 1, Key: "k", Header: map[string][]string{ingest.HeaderJobID: {"j"}}, Data: []byte("body"), Time: time.Now()})
	if j.Message == nil || j.Message.ID != "j" || string(j.Message.Body) != "body" {
		t.Errorf("the job came to %+v", j.Message)
	}
}

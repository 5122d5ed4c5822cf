package weirtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest/producer"
	"weir/cmd/weir/weirtest/program"
	"weir/cmd/weir/weirtest/referee"
	"weir/cmd/weir/weirtest/store"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Replicas are several weir processes that share a nats-server, with producers.
type Replicas struct {
	*KillRig
	Procs []*program.Process
	Each  [][]string // the environment of each process
}

const ReplicaAPI = "apis:\n  pay:\n    url: %%s/v1\n    price: 0.40\n    %s\n    jitter: 50ms\n    bucket: {rate: 50/s, capacity: 5000, in_flight: 4}\n"

// NewReplicas starts n replicas on a server, each with extra environment.
func NewReplicas(t *testing.T, url string, n int, yaml string, env ...string) *Replicas {
	t.Helper()
	return NewReplicasOf(t, url, n, fakeapi.Options{
		KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1},
		Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: time.Millisecond, Mean: 40 * time.Millisecond, Seed: 1},
	}, yaml, env...)
}

// NewReplicasOf is NewReplicas with another fake api.
func NewReplicasOf(t *testing.T, url string, n int, o fakeapi.Options, yaml string, env ...string) *Replicas {
	t.Helper()
	api, err := fakeapi.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // the api counts calls that kills cut as errors
	file := filepath.Join(t.TempDir(), "weir.yaml")
	WriteFile(t, file, fmt.Sprintf(yaml, api.URL()))
	nc, err := nats.Connect(url, nats.Timeout(await.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := &Replicas{KillRig: &KillRig{T: t, API: api, NC: nc, Acks: map[string]bool{}, heldUp: referee.MeasureHeldUp(t)}}
	for i := range n {
		r.Each = append(r.Each, append([]string{
			"WEIR_CONFIG=" + file, "WEIR_NATS_URL=" + url, "WEIR_HTTP_LISTEN=", "WEIR_PARTITIONS=8", "WEIR_SHUTDOWN_TIMEOUT=10s",
			fmt.Sprintf("WEIR_INSTANCE=replica-%d", i), "WEIR_REPLICAS=1",
		}, env...))
		r.Procs = append(r.Procs, nil)
		r.StartOne(i)
	}
	t.Cleanup(func() {
		for _, p := range r.Procs {
			p.Kill()
		}
	})
	return r
}

func (r *Replicas) StartOne(i int) {
	r.T.Helper()
	var err error
	if r.Procs[i], err = program.StartProcess(r.T, r.Each[i]...); err != nil {
		r.T.Fatal(err)
	}
}

func (r *Replicas) Signal(i int, sig os.Signal) {
	r.T.Helper()
	if err := r.Procs[i].Cmd.Process.Signal(sig); err != nil {
		r.T.Fatal(err)
	}
}

// StopOne stops a replica with SIGTERM and waits for its end.
func (r *Replicas) StopOne(i int) {
	r.T.Helper()
	r.Signal(i, syscall.SIGTERM)
	await.Receive(r.T, "the end of a replica that is told to stop", r.Procs[i].Exited)
}

// UnderLoad runs what while producers publish. Each producer has a key of its own and pauses after each job. UnderLoad
// then waits until no job waits.
func (r *Replicas) UnderLoad(keys int, pause time.Duration, what func(ctx context.Context)) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), 15*time.Minute) // each wait has its own timeout
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for p := range keys {
		producers.Go(func() {
			for n := p; publishing.Err() == nil; n += keys {
				r.Publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", p), fmt.Sprintf("job-%d", n), fmt.Appendf(nil, `{"n":%d}`, n))
				stream.Sleep(ctx, pause)
			}
		})
	}
	what(ctx)
	stop()
	await.Return(r.T, "the producers' last receipts", producers.Wait)
	r.AwaitEmpty()
}

// Records returns the ledger, in the order in which the calls started.
func (r *Replicas) Records() []ledger.Record {
	r.T.Helper()
	js, err := jetstream.New(r.NC)
	if err != nil {
		r.T.Fatal(err)
	}
	return store.RecordsOf(r.T, js)
}

// CallsBy counts the calls of each replica.
func (r *Replicas) CallsBy() map[string]int {
	n := map[string]int{}
	for _, c := range r.Records() {
		n[c.Instance]++
	}
	return n
}

// AwaitCalls waits until the api has answered n more calls. Use it while producers keep submitting.
func (r *Replicas) AwaitCalls(ctx context.Context, n int) {
	r.T.Helper()
	base := len(r.API.All())
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(base+n) }); err != nil {
		r.T.Fatalf("waited for %d more calls, saw %d: %v", n, len(r.API.All())-base, err)
	}
}

// AwaitAll waits until the api has answered n calls in all.
func (r *Replicas) AwaitAll(n int) {
	r.T.Helper()
	ctx := await.Context(r.T, fmt.Sprintf("%d calls", n))
	if err := r.API.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(n) }); err != nil {
		r.T.Fatalf("%v, saw %d", context.Cause(ctx), len(r.API.All()))
	}
}

// CheckArrivals checks the calls of all replicas together against limits that all keys share. The record of a call that
// a killed replica made has no planned time, so only its arrival counts.
func (r *Replicas) CheckArrivals(limits ...bucket.Limit) {
	r.T.Helper()
	all := r.API.All()
	var slots []bucket.Arrival
	for _, c := range r.Records() {
		if !c.Planned.IsZero() {
			slots = append(slots, bucket.Arrival{At: c.Planned.UnixNano(), End: c.Ended.UnixNano()})
		}
	}
	for _, l := range limits {
		referee.CheckSlots(r.T, slots, l, referee.RedisJitter) // the slots come from several clocks
		r.Referee().Hold("arrivals", referee.Stamped(all), l, 2*referee.RedisJitter)
	}
}

// LongestGap returns the longest time between two calls of the same key.
func (r *Replicas) LongestGap() time.Duration {
	longest := time.Duration(0)
	all := r.API.All()
	for _, key := range fakeapi.KeysOf(all) {
		of := fakeapi.OfKey(all, key)
		slices.SortFunc(of, func(a, b fakeapi.Arrival) int { return cmp.Compare(a.At, b.At) })
		for i := 1; i < len(of); i++ {
			longest = max(longest, time.Duration(of[i].At-of[i-1].At))
		}
	}
	return longest
}

const NotIdempotent = "timeout: 10s"

// FillPaused fills the queue of the api pay while the api is paused.
func (r *Replicas) FillPaused(jobs []*nats.Msg) {
	r.T.Helper()
	for _, word := range []string{"pause", "resume"} {
		if got := program.Command(r.T, []string{"WEIR_NATS_URL=" + r.NC.ConnectedUrl(), "WEIR_REPLICAS=1"}, word, "pay"); got.Code != 0 {
			r.T.Fatalf("weir %s pay: %+v", word, got)
		}
		if word == "pause" {
			producer.FillTaken(r.T, r.NC, jobs)
		}
	}
}

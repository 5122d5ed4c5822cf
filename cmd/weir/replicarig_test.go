package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
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
	"weir/cmd/weir/internal/embedded"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// replicas are several weir processes on one nats-server, with producers.
type replicas struct {
	*killRig
	procs []*process
	each  [][]string // the environment of each
}

const replicaAPI = "apis:\n  pay:\n    url: %%s/v1\n    price: 0.40\n    %s\n    jitter: 50ms\n    bucket: {rate: 50/s, capacity: 5000, in_flight: 4}\n"

// newReplicas starts n of them on a server, each with extra environment.
func newReplicas(t *testing.T, url string, n int, yaml string, env ...string) *replicas {
	t.Helper()
	api, err := fakeapi.Start(fakeapi.Options{
		KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1},
		Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: time.Millisecond, Mean: 40 * time.Millisecond, Seed: 1},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() }) // calls cut by kills are errors to it
	file := filepath.Join(t.TempDir(), "weir.yaml")
	writeFile(t, file, fmt.Sprintf(yaml, api.URL()))
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := &replicas{killRig: &killRig{t: t, api: api, nc: nc, acks: map[string]bool{}, heldUp: measureHeldUp(t)}}
	for i := range n {
		r.each = append(r.each, append([]string{
			"WEIR_CONFIG=" + file, "WEIR_NATS_URL=" + url, "WEIR_HTTP_LISTEN=", "WEIR_PARTITIONS=8", "WEIR_SHUTDOWN_TIMEOUT=10s",
			fmt.Sprintf("WEIR_INSTANCE=replica-%d", i), "WEIR_REPLICAS=1",
		}, env...))
		r.procs = append(r.procs, nil)
		r.startOne(i)
	}
	t.Cleanup(func() {
		for _, p := range r.procs {
			p.kill()
		}
	})
	return r
}

func (r *replicas) startOne(i int) {
	r.t.Helper()
	var err error
	if r.procs[i], err = startProcess(r.t, r.each[i]...); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replicas) signal(i int, sig os.Signal) {
	r.t.Helper()
	if err := r.procs[i].cmd.Process.Signal(sig); err != nil {
		r.t.Fatal(err)
	}
}

// stopOne stops a replica in order.
func (r *replicas) stopOne(i int) {
	r.t.Helper()
	r.signal(i, syscall.SIGTERM)
	await.Receive(r.t, "the end of a replica that is told to stop", r.procs[i].exited)
}

// oneServer is a nats-server for replicas to share.
func oneServer(t *testing.T) string {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{
		MaxStore: roomy,
		Listen:   "127.0.0.1:0", Dir: t.TempDir(), MaxPayload: 8 << 20, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server.ClientURL()
}

// underLoad has producers publish, each for a key of its own and with a pause after each job, while something happens, and
// waits until nothing waits.
func (r *replicas) underLoad(keys int, pause time.Duration, what func(ctx context.Context)) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 15*time.Minute) // each wait has an end of its own
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for p := range keys {
		producers.Go(func() {
			for n := p; publishing.Err() == nil; n += keys {
				r.publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", p), fmt.Sprintf("job-%d", n), fmt.Appendf(nil, `{"n":%d}`, n))
				stream.Sleep(ctx, pause)
			}
		})
	}
	what(ctx)
	stop()
	await.Return(r.t, "the producers' last receipts", producers.Wait)
	r.awaitEmpty()
}

// records are the ledger, in the order in which the calls started.
func (r *replicas) records() []ledger.Record {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	return recordsOf(r.t, js)
}

// callsBy counts the calls of each replica.
func (r *replicas) callsBy() map[string]int {
	n := map[string]int{}
	for _, c := range r.records() {
		n[c.Instance]++
	}
	return n
}

// awaitCalls waits until the api has answered n more calls: for what is called while producers go on, so that there is always more.
func (r *replicas) awaitCalls(ctx context.Context, n int) {
	r.t.Helper()
	base := len(r.api.All())
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.api.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(base+n) }); err != nil {
		r.t.Fatalf("waited for %d more calls, saw %d: %v", n, len(r.api.All())-base, err)
	}
}

// awaitAll waits until the api has answered n calls in all.
func (r *replicas) awaitAll(n int) {
	r.t.Helper()
	ctx := await.Context(r.t, fmt.Sprintf("%d calls", n))
	if err := r.api.Await(ctx, func(sum fakeapi.Totals) bool { return sum.Ended >= int64(n) }); err != nil {
		r.t.Fatalf("%v, saw %d", context.Cause(ctx), len(r.api.All()))
	}
}

// checkArrivals holds what all replicas together did against limits shared by all keys.
func (r *replicas) checkArrivals(limits ...bucket.Limit) {
	r.t.Helper()
	all := r.api.All()
	var slots []bucket.Arrival
	for _, c := range r.records() {
		slots = append(slots, bucket.Arrival{At: c.Planned.UnixNano(), End: c.Ended.UnixNano()})
	}
	for _, l := range limits {
		checkSlots(r.t, slots, l, redisJitter) // by as many clocks as there are replicas
		r.referee().hold("arrivals", stamped(all), l, 2*redisJitter)
	}
}

// longestGap is the longest time for which a key that had jobs was not called.
func (r *replicas) longestGap() time.Duration {
	longest := time.Duration(0)
	all := r.api.All()
	for _, key := range fakeapi.KeysOf(all) {
		of := fakeapi.OfKey(all, key)
		slices.SortFunc(of, func(a, b fakeapi.Arrival) int { return cmp.Compare(a.At, b.At) })
		for i := 1; i < len(of); i++ {
			longest = max(longest, time.Duration(of[i].At-of[i-1].At))
		}
	}
	return longest
}

const notIdempotent = "timeout: 10s"

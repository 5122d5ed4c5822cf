package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/dispatcher/ledger"
	"weir/ingest/await"

	"github.com/nats-io/nats.go/jetstream"
)

// TestKilledUnderLoad kills the worker, server and all, twenty times under load.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct{ name, yaml string }{
		{"idempotent", "idempotency: {header: Idempotency-Key}"},
		{"not idempotent", "timeout: 10s"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			r := restartUnderLoad(t, kind.yaml, 10, (*process).kill)
			r.judge(kind.yaml)
		})
	}
}

// TestOrderlyStopLeavesNothingUnknown: SIGTERM lets running calls end and takes back what was about to start, so that
// a deployment parks no job, not even on an api that is not idempotent.
func TestOrderlyStopLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	r := restartUnderLoad(t, "timeout: 10s", 5, func(p *process) {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		await.Receive(t, "the end of a weir that is told to stop", p.exited)
	})
	r.judge("timeout: 10s")
	for id, out := range r.outcomes() {
		if out[0] != "done" {
			t.Errorf("%s ended as %v", id, out)
		}
	}
}

// restartUnderLoad ends a worker and starts it again, several times, while eight producers publish for a key each.
func restartUnderLoad(t *testing.T, line string, times int, end func(*process)) *killRig {
	t.Helper()
	r := newKillRig(t, fakeapi.Options{
		KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1},
		Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: time.Millisecond, Mean: 10 * time.Millisecond, Seed: 1},
	}, "apis:\n  pay:\n    url: %s/v1\n    price: 0.40\n    "+line+"\n    jitter: 20ms\n    bucket: {rate: 50/s, capacity: 5000, in_flight: 4}\n")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of all restarts together
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			// Each producer keeps to one key and waits for every receipt, so that the order it wants is known.
			for n := p; publishing.Err() == nil; n += 8 {
				r.publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", p), fmt.Sprintf("job-%d", n), fmt.Appendf(nil, `{"n":%d}`, n))
			}
		})
	}
	for range times {
		if !stream.Sleep(ctx, 300*time.Millisecond) {
			t.Fatal("out of time")
		}
		end(r.proc)
		r.start()
	}
	stop()
	await.Return(t, "the producers' last receipts", producers.Wait)
	r.awaitEmpty()
	return r
}

// checkDepartures holds the starts that weir wrote down against the rate and the order: what the network and a busy
// machine did to the arrivals is not in them.
func (r *killRig) checkDepartures() {
	r.t.Helper()
	js, err := jetstream.New(r.nc)
	if err != nil {
		r.t.Fatal(err)
	}
	calls := map[string][]ledger.Record{}
	for _, c := range recordsOf(r.t, js) {
		if !c.Planned.IsZero() {
			calls[c.Key] = append(calls[c.Key], c)
		}
	}
	rate := bucket.Rate{Count: killRate, Per: time.Second, Burst: 1}
	for key, of := range calls {
		starts := make([]bucket.Arrival, len(of))
		last := uint64(0)
		for i, c := range of {
			starts[i] = bucket.Arrival{At: c.Started.UnixNano(), End: c.Ended.UnixNano()}
			if c.Call == 1 && c.Seq < last {
				r.t.Errorf("key %s: job %d was first called after job %d", key, c.Seq, last)
			}
			last = max(last, c.Seq)
		}
		r.referee().hold("starts of "+key, starts, bucket.Limit{Name: "rate", Rate: &rate}, killJitter)
	}
}

// The kill tests run many processes on a small machine: a call may arrive later than on a quiet one.
const (
	killRate   = 50
	killJitter = 20 * time.Millisecond
)

// judge holds what the api saw against what was promised.
func (r *killRig) judge(line string) {
	t := r.t
	arrivals, ended := r.api.All(), r.outcomes()
	calls := map[string]int{}
	for _, a := range arrivals {
		calls[string(a.Body)]++
	}
	idempotent := strings.HasPrefix(line, "idempotency")
	r.checkDepartures()
	lost, both, unknown, twice := 0, 0, 0, 0
	for id := range r.acks {
		switch out := ended[id]; {
		case len(out) == 0:
			lost++
		case len(out) > 1:
			both++
			t.Logf("%s ended as %v", id, out)
		case out[0] == "unknown":
			unknown++
		case out[0] != "done":
			t.Errorf("%s ended as %s", id, out[0])
		}
	}
	for _, n := range calls {
		if n > 1 {
			twice++
		}
	}
	t.Logf("accepted %d, calls %d, lost %d, two ends %d, unknown %d, called twice %d", len(r.acks), len(arrivals), lost, both, unknown, twice)
	if lost > 0 || both > 0 {
		t.Errorf("%d accepted jobs are lost, %d ended twice", lost, both)
	}
	if !idempotent && twice > 0 {
		t.Errorf("%d jobs were called twice on an api that is not idempotent", twice)
	}
	for _, key := range fakeapi.KeysOf(arrivals) {
		of := fakeapi.OfKey(arrivals, key)
		second := max(time.Second-r.referee().eps(), 1) // of stamps that are all off by more nothing is known
		if fullest := fakeapi.FullestByCount(of, second); fullest.Count > killRate {
			t.Errorf("key %s: %d calls arrived within %s, %d may", key, fullest.Count, second, killRate)
		}
	}
	if idempotent && unknown > 0 {
		t.Errorf("%d letters unknown on an idempotent api", unknown)
	}
}

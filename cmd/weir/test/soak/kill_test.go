package soak

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/program"
	"weir/ingest/await"
	"weir/ingest/client"
)

// TestKilledUnderLoad kills the worker, server and all, twenty times under load.
func TestKilledUnderLoad(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct{ name, yaml string }{
		{"idempotent", "idempotency: {header: Idempotency-Key}"},
		{"not idempotent", "timeout: 10s"},
	} {
		t.Run(kind.name, func(t *testing.T) {
			r := restartUnderLoad(t, kind.yaml, 10, (*program.Process).Kill)
			r.Judge(kind.yaml)
		})
	}
}

// TestBatchesAreSentAgain kills the worker while producers send batches. Each sends what has no answer again, until all
// jobs have receipts. No job is lost or called twice, and those of a key keep their order.
func TestBatchesAreSentAgain(t *testing.T) {
	t.Parallel()
	const line = "timeout: 10s"
	r := killableRig(t, line)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	var known atomic.Int64
	for p := range 4 {
		producers.Go(func() {
			for n := 0; stream.Sleep(publishing, 20*time.Millisecond); n++ { // at full speed the buckets would be full
				var jobs []client.Submission
				for i := range 24 {
					id := fmt.Sprintf("job-%d-%d-%d", p, n, i)
					key := fmt.Sprintf("key-%d-%d", p, i%8)
					jobs = append(jobs, client.Submission{API: "pay", Key: key, ID: id, Path: "/" + key, Body: []byte(id)})
				}
				known.Add(int64(r.PublishAll(ctx, jobs)))
			}
		})
	}
	for range 8 {
		if !stream.Sleep(ctx, 300*time.Millisecond) {
			t.Fatal("out of time")
		}
		r.Proc.Kill()
		r.Start()
	}
	stop()
	await.Return(t, "the producers' last receipts", producers.Wait)
	r.AwaitEmpty()
	r.Judge(line)
	t.Logf("%d jobs were known when they were sent again", known.Load())
}

// TestOrderlyStopLeavesNothingUnknown: SIGTERM lets running calls end and takes back what was about to start, so that
// a deployment parks no job, not even on an api that is not idempotent.
func TestOrderlyStopLeavesNothingUnknown(t *testing.T) {
	t.Parallel()
	r := restartUnderLoad(t, "timeout: 10s", 5, func(p *program.Process) {
		if err := p.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		await.Receive(t, "the end of a weir that is told to stop", p.Exited)
	})
	r.Judge("timeout: 10s")
	for id, out := range r.Outcomes() {
		if out[0] != "done" {
			t.Errorf("%s ended as %v", id, out)
		}
	}
}

// killableRig starts a worker with the api pay. line is a line of its configuration.
func killableRig(t *testing.T, line string, env ...string) *weirtest.KillRig {
	t.Helper()
	return weirtest.NewKillRig(t, fakeapi.Options{
		KeepBody: 64, Key: fakeapi.KeyFrom{Segment: -1},
		Latency: fakeapi.Latency{Shape: fakeapi.Uniform, Min: time.Millisecond, Mean: 10 * time.Millisecond, Seed: 1},
	}, "apis:\n  pay:\n    url: %s/v1\n    price: 0.40\n    "+line+"\n    jitter: 20ms\n    bucket: {rate: 50/s, capacity: 5000, in_flight: 4}\n", env...)
}

// restartUnderLoad ends a worker and starts it again, several times, while eight producers publish for a key each.
func restartUnderLoad(t *testing.T, line string, times int, end func(*program.Process), env ...string) *weirtest.KillRig {
	t.Helper()
	r := killableRig(t, line, env...)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of all restarts together
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	var producers sync.WaitGroup
	for p := range 8 {
		producers.Go(func() {
			// Each producer keeps to one key and waits for every receipt, so that the order it wants is known.
			for n := p; publishing.Err() == nil; n += 8 {
				r.Publish(ctx, fmt.Sprintf("weir.jobs.pay.key-%d", p), fmt.Sprintf("job-%d", n), fmt.Appendf(nil, `{"n":%d}`, n))
			}
		})
	}
	for range times {
		if !stream.Sleep(ctx, 300*time.Millisecond) {
			t.Fatal("out of time")
		}
		end(r.Proc)
		r.Start()
	}
	stop()
	await.Return(t, "the producers' last receipts", producers.Wait)
	r.AwaitEmpty()
	return r
}

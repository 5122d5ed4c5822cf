package soak

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
)

// TestPoisonIsParked lets the call of one job of an idempotent api kill the worker each time: the job is parked after a
// few deaths, and every other job is done.
func TestPoisonIsParked(t *testing.T) {
	t.Parallel()
	var worker atomic.Int64
	var deaths atomic.Int64
	r := weirtest.NewKillRig(t, fakeapi.Options{
		Key: fakeapi.KeyFrom{Segment: -1}, Headers: []string{"Idempotency-Key"},
		Script: func(ctx context.Context, q *fakeapi.Request) fakeapi.Behaviour {
			if q.Key == "poison" {
				deaths.Add(1)
				for worker.Load() == 0 && stream.Sleep(ctx, time.Millisecond) {
					continue // it calls before it is ready
				}
				if pid := int(worker.Load()); pid != 0 {
					if p, err := os.FindProcess(pid); err == nil {
						_ = p.Kill() // it may be dead
					}
				}
			}
			return fakeapi.Behaviour{}
		},
	}, `
apis:
  pay:
    url: %s
    idempotency: {header: Idempotency-Key}
    bucket: {rate: 50/s, capacity: 100}
`)
	worker.Store(int64(r.Proc.Cmd.Process.Pid))
	ctx, cancel := context.WithTimeout(t.Context(), weirtest.Patience)
	defer cancel()
	for i := range 40 {
		r.Publish(ctx, fmt.Sprintf("weir.jobs.pay.good%d", i%4), fmt.Sprint("good-", i), nil)
	}
	accepted := make(chan struct{})
	go func() { // its receipt may be lost with the worker: then it is sent again
		r.Publish(ctx, "weir.jobs.pay.poison", "poison", nil)
		close(accepted)
	}()
	for ended := false; ctx.Err() == nil && !ended; {
		select {
		case <-r.Proc.Exited:
			worker.Store(0)
			r.Start()
			worker.Store(int64(r.Proc.Cmd.Process.Pid))
		case <-time.After(20 * time.Millisecond):
			select {
			case <-accepted:
				ended = r.Queued() == 0
			default:
			}
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("after %d deaths jobs still wait", deaths.Load())
	}
	ended := r.Outcomes()
	if got := ended["poison"]; !slices.Equal(got, []string{"exhausted"}) {
		t.Errorf("the poison job ended as %v", got)
	}
	if n := deaths.Load(); n < 4 || n > 5 {
		t.Errorf("the poison job was called %d times", n)
	}
	for i := range 40 {
		if got := ended[fmt.Sprint("good-", i)]; !slices.Equal(got, []string{"done"}) {
			t.Errorf("good-%d ended as %v", i, got)
		}
	}
}

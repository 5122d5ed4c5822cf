package soak

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/ingest/await"
)

// relay passes connections on until it is cut: then those there are break, and none is taken.
type relay struct {
	listener net.Listener
	mu       sync.Mutex
	conns    []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener}
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close() // the caller sees it
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, onward)
			r.mu.Unlock()
			for _, way := range [][2]net.Conn{{from, onward}, {onward, from}} {
				passing.Go(func() {
					_, _ = io.Copy(way[0], way[1]) // it ends with either
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { r.cut(); await.Return(t, "the end of a relay", passing.Wait) })
	return r
}

func (r *relay) cut() {
	_ = r.listener.Close() // for good
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		_ = conn.Close() // it may have ended
	}
}

// TestReplicaCutOffFromRedis: what a replica owns that alone is cut off from Redis, the others go on with.
func TestReplicaCutOffFromRedis(t *testing.T) {
	t.Parallel()
	redis := weirtest.StartRedis(t)
	way := newRelay(t, redis.Addr)
	yaml := fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent) + "    limits: [{name: account, rate: 150/s}]\n"
	r := weirtest.NewReplicas(t, weirtest.OneServer(t), 2, yaml, "WEIR_REDIS_URL=redis://"+redis.Addr)
	r.StopOne(0)
	r.Each[0] = append(r.Each[0], "WEIR_REDIS_URL=redis://"+way.listener.Addr().String())
	r.StartOne(0)
	const keys = 8
	r.UnderLoad(keys, 50*time.Millisecond, func(ctx context.Context) {
		r.AwaitCalls(ctx, 100)
		for r.CallsBy()["replica-0"] < 40 {
			r.AwaitCalls(ctx, 20)
		}
		way.cut()
		cut := len(r.API.All())
		calledSince := func() bool {
			since := r.API.All()[cut:]
			for _, key := range fakeapi.KeysOf(since) {
				if len(fakeapi.OfKey(since, key)) < 20 {
					return false
				}
			}
			return len(fakeapi.KeysOf(since)) == keys
		}
		for begun := time.Now(); !calledSince(); {
			if time.Since(begun) > weirtest.Patience || !stream.Sleep(ctx, 50*time.Millisecond) {
				t.Fatal("keys of the replica that is cut off from Redis are not called")
			}
		}
	})
	r.Judge(weirtest.NotIdempotent)
}

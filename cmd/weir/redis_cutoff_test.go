package main

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
				_ = from.Close() // who called sees it
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
	redis := startRedis(t)
	way := newRelay(t, redis.addr)
	yaml := fmt.Sprintf(replicaAPI, notIdempotent) + "    limits: [{name: account, rate: 150/s}]\n"
	r := newReplicas(t, oneServer(t), 2, yaml, "WEIR_REDIS_URL=redis://"+redis.addr)
	r.stopOne(0)
	r.each[0] = append(r.each[0], "WEIR_REDIS_URL=redis://"+way.listener.Addr().String())
	r.startOne(0)
	const keys = 8
	r.underLoad(keys, 50*time.Millisecond, func(ctx context.Context) {
		r.awaitCalls(ctx, 100)
		for r.callsBy()["replica-0"] < 40 {
			r.awaitCalls(ctx, 20)
		}
		way.cut()
		cut := len(r.api.All())
		calledSince := func() bool {
			since := r.api.All()[cut:]
			for _, key := range fakeapi.KeysOf(since) {
				if len(fakeapi.OfKey(since, key)) < 20 {
					return false
				}
			}
			return len(fakeapi.KeysOf(since)) == keys
		}
		for begun := time.Now(); !calledSince(); {
			if time.Since(begun) > patience || !stream.Sleep(ctx, 50*time.Millisecond) {
				t.Fatal("keys of the replica that is cut off from Redis are not called")
			}
		}
	})
	r.judge(notIdempotent)
}

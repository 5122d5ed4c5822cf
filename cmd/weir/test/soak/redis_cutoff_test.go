package soak

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket/stream"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir/weirtest"
	"weir/cmd/weir/weirtest/servers"
)

// TestReplicaCutOffFromRedis: what a replica owns that alone is cut off from Redis, the others go on with.
func TestReplicaCutOffFromRedis(t *testing.T) {
	t.Parallel()
	redis := servers.StartRedis(t)
	way := servers.NewRelay(t, redis.Addr)
	yaml := fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent) + "    limits: [{name: account, rate: 150/s}]\n"
	r := weirtest.NewReplicas(t, servers.OneServer(t), 2, yaml, "WEIR_REDIS_URL=redis://"+redis.Addr)
	r.StopOne(0)
	r.Each[0] = append(r.Each[0], "WEIR_REDIS_URL=redis://"+way.Addr())
	r.StartOne(0)
	const keys = 8
	r.UnderLoad(keys, 50*time.Millisecond, func(ctx context.Context) {
		r.AwaitCalls(ctx, 100)
		for r.CallsBy()["replica-0"] < 40 {
			r.AwaitCalls(ctx, 20)
		}
		way.Cut()
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

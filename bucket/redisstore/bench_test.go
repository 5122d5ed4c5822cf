package redisstore

import (
	"context"
	"testing"

	"weir/bucket"
	"weir/bucket/storetest"
)

// BenchmarkRedis runs by the server's own clock over loopback, as in production. A bare PING shows what the round trip
// costs.
func BenchmarkRedis(b *testing.B) {
	s := startServer(b)
	c := s.client()
	b.Run("bare PING", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if err := c.Ping(context.Background()).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	storetest.Benchmark(b, func(t testing.TB, rules bucket.Rules) bucket.Store {
		st, err := New(context.Background(), Options{Client: c, API: names(), Rules: rules, Epoch: Fresh})
		if err != nil {
			t.Fatal(err)
		}
		return st
	})
}

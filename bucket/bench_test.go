package bucket_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"weir/bucket"
	"weir/bucket/storetest"
)

func now() bucket.Micros { return bucket.MicrosOf(time.Now()) }

func BenchmarkMemory(b *testing.B) {
	storetest.Benchmark(b, func(t testing.TB, rules bucket.Rules) bucket.Store {
		m, err := bucket.NewMemory(rules, now)
		if err != nil {
			t.Fatal(err)
		}
		return m
	})
}

// BenchmarkKeys fills a store with keys in debt and asks for them. The keys are asked for in the order in which their
// names lie in memory, which is random in the store. So the benchmark does not wait for the names. B/key is the heap
// that the store takes, with state and index but without the names. For comparison the same runs with
// golang.org/x/time/rate, in a map of limiters.
func BenchmarkKeys(b *testing.B) {
	limits := bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1000}}
	for _, n := range []int{1000, 1_000_000} {
		names := make([]string, n)
		order := rand.New(rand.NewPCG(1, 2)).Perm(n)
		for i := range names {
			names[i] = fmt.Sprintf("customer-%07d", i)
		}
		b.Run(fmt.Sprintf("weir/%d", n), func(b *testing.B) {
			before := heap()
			m, err := bucket.NewMemory(bucket.Rules{Key: limits}, now)
			if err != nil {
				b.Fatal(err)
			}
			ask := []bucket.Ask{{Limits: limits, Want: 1, Horizon: time.Hour}}
			reserve := func(name string) {
				ask[0].Key = name
				if _, err := m.Reserve(context.Background(), ask); err != nil {
					b.Fatal(err)
				}
			}
			for _, i := range order {
				reserve(names[i])
			}
			perKey := float64(heap()-before) / float64(n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				reserve(names[i%n])
			}
			b.ReportMetric(perKey, "B/key")
			if m.Keys() != n {
				b.Fatalf("%d keys of %d kept", m.Keys(), n)
			}
		})
		b.Run(fmt.Sprintf("x_time_rate in a map/%d", n), func(b *testing.B) {
			before := heap()
			limiters := map[string]*rate.Limiter{}
			for _, i := range order {
				limiters[names[i]] = rate.NewLimiter(rate.Every(time.Hour), 1000)
			}
			perKey := float64(heap()-before) / float64(n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				limiters[names[i%n]].ReserveN(time.Now(), 1)
			}
			b.ReportMetric(perKey, "B/key")
		})
	}
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

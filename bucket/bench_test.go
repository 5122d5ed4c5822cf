package bucket_test

import (
	"context"
	"fmt"
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

// BenchmarkBeside is the same single reservation by golang.org/x/time/rate, bare and, as it would have to be used here, in
// a map of keys.
func BenchmarkBeside(b *testing.B) {
	b.Run("x_time_rate, one limiter", func(b *testing.B) {
		l := rate.NewLimiter(1e6, 2e6)
		b.ReportAllocs()
		for range b.N {
			l.ReserveN(time.Now(), 1)
		}
	})
	b.Run("x_time_rate, a map of 1000", func(b *testing.B) {
		keys := make([]string, 1000)
		limiters := map[string]*rate.Limiter{}
		for i := range keys {
			keys[i] = fmt.Sprint("key", i)
			limiters[keys[i]] = rate.NewLimiter(1e6, 2e6)
		}
		b.ReportAllocs()
		for i := range b.N {
			limiters[keys[i%1000]].ReserveN(time.Now(), 1)
		}
	})
	b.Run("weir, 1000 keys", func(b *testing.B) {
		limits := bucket.KeyLimits{Rate: bucket.Rate{Count: 1_000_000, Per: time.Second, Burst: 2_000_000}}
		m, err := bucket.NewMemory(bucket.Rules{Key: limits}, now)
		if err != nil {
			b.Fatal(err)
		}
		asks := make([][]bucket.Ask, 1000)
		for i := range asks {
			asks[i] = []bucket.Ask{{Key: fmt.Sprint("key", i), Limits: limits, Want: 1}}
		}
		b.ReportAllocs()
		for i := range b.N {
			if _, err := m.Reserve(context.Background(), asks[i%1000]); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkKeys fills a store with a million keys in debt: bytes a key on the heap (the index and the key's own
// characters included), and what a reservation costs then beside a thousand.
func BenchmarkKeys(b *testing.B) {
	limits := bucket.KeyLimits{Rate: bucket.Rate{Count: 1, Per: time.Hour, Burst: 1000}}
	for _, n := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			names := make([]string, n)
			for i := range names {
				names[i] = fmt.Sprintf("customer-%07d", i)
			}
			before := heap()
			m, err := bucket.NewMemory(bucket.Rules{Key: limits}, now)
			if err != nil {
				b.Fatal(err)
			}
			ask := []bucket.Ask{{Limits: limits, Want: 1, Horizon: time.Hour}}
			for _, name := range names {
				ask[0].Key = name
				if _, err := m.Reserve(context.Background(), ask); err != nil {
					b.Fatal(err)
				}
			}
			perKey := float64(heap()-before) / float64(n)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				ask[0].Key = names[i*7919%n]
				if _, err := m.Reserve(context.Background(), ask); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(perKey, "B/key")
			if m.Keys() != n {
				b.Fatalf("%d keys of %d kept", m.Keys(), n)
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

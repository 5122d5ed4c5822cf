package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/throttled/throttled/v2/store/memstore"
	"golang.org/x/time/rate"

	"weir/bucket"
	"weir/bucket/redisstore"
)

// BenchmarkBeside measures one reservation by weir and one by other limiters, in the same run, over a thousand keys at
// a rate that never binds. ns/op, B/op and allocs/op are per reservation, even for a batch.
//
// They do different things. x/time/rate, redis_rate and throttled say for one limit whether a call may go now; the
// first also says when. weir reserves a time under all limits at once, and can take the reservation back. The others
// have no batches.
func BenchmarkBeside(b *testing.B) {
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	b.Run("memory", func(b *testing.B) { besideMemory(b, keys) })
	b.Run("redis", func(b *testing.B) { besideRedis(b, keys) })
}

const (
	besideCount = 1_000_000 // a second
	besideBurst = 2_000_000
)

func besideMemory(b *testing.B, keys []string) {
	for _, c := range besideRules() {
		m, err := bucket.NewMemory(c.rules, func() bucket.Micros { return bucket.MicrosOf(time.Now()) })
		if err != nil {
			b.Fatal(err)
		}
		b.Run("weir, "+c.name, func(b *testing.B) { reserveSingly(b, m, c.rules, keys) })
	}
	b.Run("x_time_rate, a map of limiters", func(b *testing.B) {
		limiters := map[string]*rate.Limiter{}
		for _, key := range keys {
			limiters[key] = rate.NewLimiter(besideCount, besideBurst)
		}
		b.ReportAllocs()
		for i := range b.N {
			limiters[keys[i%len(keys)]].ReserveN(time.Now(), 1)
		}
	})
	b.Run("throttled, memstore", func(b *testing.B) {
		store, err := memstore.NewCtx(0)
		if err != nil {
			b.Fatal(err)
		}
		throttle(b, store, keys)
	})
}

func besideRedis(b *testing.B, keys []string) {
	client, ctx := startRedis(b), context.Background()
	b.Run("bare PING", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if err := client.Ping(ctx).Err(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for i, c := range besideRules() {
		st, err := redisstore.New(ctx, redisstore.Options{Client: client, API: fmt.Sprint("api", i), Rules: c.rules, Epoch: redisstore.Fresh})
		if err != nil {
			b.Fatal(err)
		}
		b.Run("weir, "+c.name, func(b *testing.B) { reserveSingly(b, st, c.rules, keys) })
		b.Run("weir, "+c.name+", 64 in a batch", func(b *testing.B) { reserveTogether(b, st, c.rules, keys[:64]) })
	}
	b.Run("redis_rate", func(b *testing.B) {
		l, limit := redis_rate.NewLimiter(client), redis_rate.Limit{Rate: besideCount, Burst: besideBurst, Period: time.Second}
		b.ReportAllocs()
		for i := range b.N {
			if _, err := l.Allow(ctx, keys[i%len(keys)], limit); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("throttled, goredisstore", func(b *testing.B) {
		store, err := goredisstore.NewCtx(client, "throttled:")
		if err != nil {
			b.Fatal(err)
		}
		throttle(b, store, keys)
	})
}

// besideCase has the rules of one benchmark.
type besideCase struct {
	name  string
	rules bucket.Rules
}

// besideRules returns rules with one limit, and with four.
func besideRules() []besideCase {
	one := bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: besideCount, Per: time.Second, Burst: besideBurst}}, Lease: time.Second,
	}
	four := one
	four.Shared = []bucket.Limit{
		{Name: "account", Rate: &bucket.Rate{Count: 900_000, Per: time.Second, Burst: 1_000_000}},
		{Name: "daily", Quota: &bucket.Quota{Count: 1 << 50, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}},
		{Name: "sliding", Quota: &bucket.Quota{Count: 1 << 50, Window: bucket.Sliding, Per: time.Hour}},
	}
	return []besideCase{{"one limit", one}, {"four limits", four}}
}

func reserveSingly(b *testing.B, s bucket.Store, rules bucket.Rules, keys []string) {
	ask := []bucket.Ask{{Limits: rules.Key, Want: 1, Horizon: time.Hour}}
	b.ReportAllocs()
	for i := range b.N {
		ask[0].Key = keys[i%len(keys)]
		if got, err := s.Reserve(context.Background(), ask); err != nil || len(got[0].Grants) != 1 {
			b.Fatal(got, err)
		}
	}
}

func reserveTogether(b *testing.B, s bucket.Store, rules bucket.Rules, keys []string) {
	asks := make([]bucket.Ask, len(keys))
	for i, key := range keys {
		asks[i] = bucket.Ask{Key: key, Limits: rules.Key, Want: 1, Horizon: time.Hour}
	}
	b.ReportAllocs()
	for n := 0; n < b.N; n += len(asks) {
		if got, err := s.Reserve(context.Background(), asks); err != nil || len(got[0].Grants) != 1 {
			b.Fatal(got, err)
		}
	}
}

func throttle(b *testing.B, store throttled.GCRAStoreCtx, keys []string) {
	l, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(besideCount), MaxBurst: besideBurst})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := range b.N {
		if _, _, err := l.RateLimitCtx(context.Background(), keys[i%len(keys)], 1); err != nil {
			b.Fatal(err)
		}
	}
}

package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"weir/bucket"
)

// Benchmark measures what a reservation costs a store: under the key's own rate, under several limits at once, in a
// batch, and together with its settlement. Times are per slot.
func Benchmark(b *testing.B, open func(testing.TB, bucket.Rules) bucket.Store) {
	shared := []bucket.Limit{
		sharedRate("account", 900_000, time.Second, 1_000_000),
		quota("daily", bucket.Quota{Count: 1 << 50, Window: bucket.Calendar, Unit: bucket.Day, Zone: time.UTC}),
		quota("sliding", bucket.Quota{Count: 1 << 50, Window: bucket.Sliding, Per: time.Hour}),
		{Name: "calls", InFlight: 1 << 29},
	}
	for _, c := range []struct {
		name       string
		rules      bucket.Rules
		asks, want int
		settle     bool
	}{
		{"one limit", only(), 1, 1, false},
		{"two limits", only(shared[0]), 1, 1, true},
		{"five limits", only(shared...), 1, 1, true},
		{"one limit, 64 keys at once", only(), 64, 1, false},
		{"five limits, 64 keys at once", only(shared...), 64, 1, true},
		{"five limits, 64 slots at once", only(shared...), 1, 64, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.rules.Lease = time.Second
			s := open(b, c.rules)
			asks := make([]bucket.Ask, c.asks)
			for i := range asks {
				asks[i] = bucket.Ask{Key: fmt.Sprint("key", i), Limits: c.rules.Key, Want: c.want, Horizon: far}
			}
			uses := make([]bucket.Use, 0, c.asks*c.want)
			b.ReportAllocs()
			b.ResetTimer()
			for n := 0; n < b.N; n += c.asks * c.want {
				got, err := s.Reserve(context.Background(), asks)
				if err != nil {
					b.Fatal(err)
				}
				if !c.settle {
					continue
				}
				uses = uses[:0]
				for i, a := range got {
					for _, g := range a.Grants {
						uses = append(uses, bucket.Use{Key: asks[i].Key, Grant: g})
					}
				}
				if err := s.Settle(context.Background(), uses); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package bucket_test

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
)

// A key may call ten times a second, three of them at once after idling, and never more than ten in any second.
func ExampleMemory() {
	rules := bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 10, Per: time.Second, Burst: 3}}}
	start := bucket.MicrosOf(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC))
	m, err := bucket.NewMemory(rules, func() bucket.Micros { return start })
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := m.Reserve(context.Background(), []bucket.Ask{{
		Key: "vip-1", Limits: rules.For("vip-1"), Want: 6, Horizon: 300 * time.Millisecond,
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, g := range got[0].Grants {
		fmt.Println("call after", start.Until(g.At))
	}
	fmt.Println("then the", got[0].Wait.Limit, "says: ask again after", start.Until(got[0].Wait.Until))
	// Output:
	// call after 0s
	// call after 0s
	// call after 0s
	// call after 125ms
	// call after 250ms
	// then the rate says: ask again after 75ms
}

// A hundred calls at the end of a minute and a hundred at the beginning of the next are two hundred in fifty seconds.
func ExampleCheck() {
	var arrivals []bucket.Arrival
	for i := range int64(100) {
		arrivals = append(arrivals,
			bucket.Arrival{At: (30_000 + i*300) * 1e6},
			bucket.Arrival{At: (60_000 + i*200) * 1e6})
	}
	for _, w := range []bucket.Window{bucket.Fixed, bucket.Sliding} {
		limit := bucket.Limit{Quota: &bucket.Quota{Count: 100, Window: w, Per: time.Minute}}
		v := bucket.Check(arrivals, bucket.Expectation{Limit: limit})
		fmt.Println(w, v.Outcome, v.Worst)
	}
	// Output:
	// fixed pass 100
	// sliding fail 200
}

package redisstore

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"weir/bucket"
)

// TestFailoverToACopyThatLags lets a replica of Redis take over that lacks the last asks. The grants before and after,
// merged, must be within every limit.
func TestFailoverToACopyThatLags(t *testing.T) {
	ctx := context.Background()
	primary := startServer(t)
	host, port, _ := net.SplitHostPort(primary.addr)
	copied := startServer(t, "--replicaof", host+" "+port)
	clock := start
	r := newReplica(t, primary, "api", Fresh, lossRules(), &clock)
	var arrivals []bucket.Arrival
	take := func() (n int) {
		for _, g := range r.left("k", 5) {
			arrivals = append(arrivals, bucket.Arrival{At: int64(g.At) * 1000, End: int64(g.At)*1000 + 1})
			n++
			if err := r.Settle(ctx, []bucket.Use{{Key: "k", Grant: g}}); err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	if n := take(); n != 5 {
		t.Fatalf("%d of 5 left a fresh api", n)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(90 * time.Second); ; {
		asked, _ := copied.client().HGet(ctx, "{weir:api}:state", "asked").Result()
		present, _ := primary.client().HGet(ctx, "{weir:api}:state", "asked").Result()
		if asked != "" && asked == present {
			break
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("the copy does not follow")
		}
	}
	if err := copied.client().Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	for range 12 { // the copy does not get these
		clock += 625_000
		if n := take(); n != 1 {
			t.Fatalf("%d left a bucket that leaks one", n)
		}
	}
	epoch := r.Epoch()
	primary.kill()
	if _, err := r.Reserve(ctx, []bucket.Ask{{Key: "k", Limits: r.rules.Key, Want: 1}}); err == nil {
		t.Error("granted without a server")
	}
	r.client = copied.client()
	if n := take(); n != 0 {
		t.Errorf("%d left just after the failover", n)
	}
	if r.Epoch() == epoch {
		t.Error("the loss has no new epoch")
	}
	for end := clock + 3*60_000_000; clock < end; clock += 500_000 {
		if n := take(); n != 0 {
			t.Fatalf("%d left a day's quota that nobody knows", n)
		}
	}
	for end := clock + 86_400_000_000 + 60_000_000; clock < end; clock += 600_000_000 {
		take()
	}
	if len(arrivals) < 17+40 {
		t.Errorf("%d calls in all: the limits did not open again", len(arrivals))
	}
	rules := lossRules()
	for _, l := range append(rules.Shared, bucket.Limit{Name: "key", Rate: &rules.Key.Rate}) {
		if l.InFlight > 0 {
			continue
		}
		if v := bucket.Check(arrivals, bucket.Expectation{Limit: l}); v.Outcome != bucket.Pass {
			t.Errorf("%s: %s", l.Name, v)
		}
	}
	info, err := copied.client().Info(ctx, "replication").Result()
	if err != nil || !strings.Contains(info, "role:master") {
		t.Errorf("the copy did not take over: %v", err)
	}
}

package ownership

import (
	"context"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/lease"
	"weir/bucket/natstest"
)

// TestDeadRivalIsWaitedForOnce checks that a start that has waited for a dead replica ends its membership, so
// that its partitions are not waited for again.
func TestDeadRivalIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	r, err := lease.OpenRegistry(t.Context(), natstest.JetStream(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Join(t.Context(), lease.Member{Instance: "dead", Partitions: map[string]int{"a": 1}}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	rules := map[string]bucket.Rules{"a": {Shared: []bucket.Limit{{Name: "account", Rate: &bucket.Rate{Count: 1, Per: time.Second, Burst: 1}}}}}
	if err := AwaitNoRival(t.Context(), r, "", rules); err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(begun); waited < lease.Right {
		t.Errorf("a replica was taken for dead after %s, that may call for %s", waited, lease.Right)
	}
	members, err := r.Members(t.Context())
	if err != nil || len(members) != 0 {
		t.Errorf("%d members are left, %v", len(members), err)
	}
}

// TestRivalThatCountsElsewhereIsFound checks that a start that counts in Redis is refused beside a live replica that
// counts in its process, and not beside one that counts in Redis.
func TestRivalThatCountsElsewhereIsFound(t *testing.T) {
	t.Parallel()
	for _, sharedBy := range []string{"", "redis"} {
		t.Run("beside="+sharedBy, func(t *testing.T) {
			r, err := lease.OpenRegistry(t.Context(), natstest.JetStream(t), 1)
			if err != nil {
				t.Fatal(err)
			}
			other, err := r.Join(t.Context(), lease.Member{Instance: "other", SharedBy: sharedBy})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			go func() { _ = other.Keep(ctx, func(*lease.Member) {}, func() {}) }()
			err = AwaitNoRival(ctx, r, "redis", nil)
			if (err == nil) != (sharedBy == "redis") {
				t.Errorf("it is told %v", err)
			}
		})
	}
}

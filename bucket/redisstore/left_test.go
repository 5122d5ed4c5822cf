package redisstore

import (
	"context"
	"testing"
	"time"

	"weir/bucket"
)

func leftRules() bucket.Rules {
	account := bucket.Limit{Name: "account", Rate: &bucket.Rate{Count: 600, Per: time.Minute, Burst: 60}}
	account.Left.Header = "X-Left"
	return bucket.Rules{
		Key:    bucket.KeyLimits{Rate: bucket.Rate{Count: 1_000_000, Per: time.Second, Burst: 2_000_000}},
		Shared: []bucket.Limit{account},
	}
}

// answer settles a call whose answer says what is left, for 30 s after start.
func (r replica) answer(g bucket.Grant, units int64) {
	r.t.Helper()
	until := start.Add(30 * time.Second)
	left := []bucket.Left{{Valid: true, Units: units, Until: until, Least: until}}
	if err := r.Settle(context.Background(), []bucket.Use{{Key: "k", Grant: g, Left: left}}); err != nil {
		r.t.Fatal(err)
	}
}

// TestReplicasShareWhatIsLeft checks that an answer to one replica holds the calls of all replicas, that the answer to
// the newest call decides, whichever replica made it, and that a replica that starts later is held too.
func TestReplicasShareWhatIsLeft(t *testing.T) {
	s, now, api := startServer(t), start, names()
	one, two := newReplica(t, s, api, Fresh, leftRules(), &now), newReplica(t, s, api, Fresh, leftRules(), &now)
	early, late := one.left("a", 1)[0], two.left("b", 1)[0]
	two.answer(late, 5)
	one.answer(early, 0)
	if a, b := len(one.left("a", 3)), len(two.left("b", 9)); a != 3 || b != 2 {
		t.Errorf("%d and %d slots of the five that are left", a, b)
	}
	levels, err := one.Levels(t.Context())
	if err != nil || len(levels) != 1 || levels[0].Excess <= 0 || levels[0].ExcessUntil != start.Add(30*time.Second) {
		t.Errorf("levels %+v, %v", levels, err)
	}
	epoch, _ := one.Mark()
	third := newReplica(t, s, api, epoch, leftRules(), &now)
	if n := len(third.left("c", 1)); n != 0 {
		t.Errorf("a replica that has just started got %d slots of none", n)
	}
	now = start.Add(30 * time.Second)
	if n := len(third.left("c", 9)); n != 9 {
		t.Errorf("%d slots when the vendor's count has begun anew, want 9", n)
	}
	if levels, err := two.Levels(t.Context()); err != nil || len(levels) != 0 {
		t.Errorf("levels %+v, %v", levels, err)
	}
}

// TestLeftWhileTimeIsSetBack checks that the vendor's figure lasts as long as the vendor said, although TIME is set
// back.
func TestLeftWhileTimeIsSetBack(t *testing.T) {
	s, now := startServer(t), start
	r := newReplica(t, s, names(), Fresh, leftRules(), &now)
	r.answer(r.left("a", 1)[0], 0)
	now = now.Add(-time.Hour)
	if n := len(r.left("a", 1)); n != 0 {
		t.Errorf("%d slots of none after TIME was set back", n)
	}
	levels, err := r.Levels(t.Context())
	if err != nil || len(levels) != 1 || levels[0].ExcessUntil != now.Add(30*time.Second) {
		t.Errorf("levels %+v, %v, want until 30 s from now", levels, err)
	}
	now = now.Add(30 * time.Second)
	if n := len(r.left("a", 1)); n != 1 {
		t.Error("no slot when the vendor's count has begun anew")
	}
}

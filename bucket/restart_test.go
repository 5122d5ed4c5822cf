package bucket_test

import (
	"context"
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/storetest"
)

// restarting is a store that is killed at every change of its rules. Like a worker, it keeps the last checkpoint, the
// rules that were in force, and every key's TAT after its last call.
type restarting struct {
	*bucket.Memory
	t      testing.TB
	now    func() bucket.Micros
	rules  bucket.Rules
	began  bucket.Micros
	kept   bucket.Snapshot
	former []bucket.Former
	tats   map[string]bucket.Micros
}

func (r *restarting) save() {
	r.kept = r.Checkpoint(100 * time.Millisecond)
	r.Saved(r.kept)
}

// Reserve implements bucket.Store.
func (r *restarting) Reserve(ctx context.Context, asks []bucket.Ask) ([]bucket.Answer, error) {
	r.save()
	for i := range asks {
		asks[i].Horizon = 0 // a process that is killed makes no call later
		// the ledger may have recorded the TAT under another rate
		rate := asks[i].Limits.Rate
		full := r.began.Add(r.rules.Interval(rate).Duration() * time.Duration(r.rules.Burst(rate)))
		asks[i].Floor = min(r.tats[asks[i].Key], full)
	}
	answers, err := r.Memory.Reserve(ctx, asks)
	for i := range answers {
		for _, g := range answers[i].Grants {
			r.tats[asks[i].Key] = g.TAT
		}
	}
	return answers, err
}

// Apply implements storetest.Store.
func (r *restarting) Apply(rules bucket.Rules) error {
	next, err := bucket.NewMemory(rules, r.now)
	if err != nil {
		return err
	}
	r.former = append(r.former, bucket.Former{Rules: r.rules, Until: r.now()})
	next.Restore(r.kept)
	next.Former(r.former)
	r.Memory, r.rules, r.began = next, rules, r.now()
	r.save()
	return nil
}

// TestChangesThroughRestarts checks that windows across a change hold even if a crash comes with the change.
func TestChangesThroughRestarts(t *testing.T) {
	storetest.Changes(t, func(t testing.TB, rules bucket.Rules, clock *storetest.Clock) storetest.Store {
		m, err := bucket.NewMemory(rules, clock.Now)
		if err != nil {
			t.Fatal(err)
		}
		m.Restore(bucket.Snapshot{})
		return &restarting{Memory: m, t: t, now: clock.Now, rules: rules, began: clock.Now(), tats: map[string]bucket.Micros{}}
	}, 1000)
}

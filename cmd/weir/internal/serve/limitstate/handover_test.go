package limitstate

import (
	"testing"
	"time"

	"weir/bucket"
	"weir/bucket/natstest"
)

// TestTakeOverBesideAReplicaThatLags checks that limits count the ledger's calls if Redis counted last, although a
// replica that lags answers that there is no mark.
func TestTakeOverBesideAReplicaThatLags(t *testing.T) {
	o := serverForLimits(t)
	quota := bucket.Quota{Count: 1000, Window: bucket.Fixed, Per: 24 * time.Hour}
	rules := bucket.Rules{
		Key: bucket.KeyLimits{Rate: bucket.Rate{Count: 1000, Per: time.Second, Burst: 1000}}, Lease: time.Minute,
		Shared: []bucket.Limit{{Name: "day", Quota: &quota}},
	}
	if _, err := o.Control.Put(t.Context(), epochKey("one"), []byte(`{"epoch":"7","asked":12}`)); err != nil {
		t.Fatal(err)
	}
	natstest.LagReads(t, o.JetStream, "KV_"+o.Control.Bucket())
	one := unit{name: "one", apis: []string{"one"}, rules: rules}
	if err := takeOverFromRedis(t.Context(), o, &one); err != nil {
		t.Fatal(err)
	}
	s := &sharedLimits{api: "one", control: o.Control, js: o.JetStream}
	mark, err := s.readMark(t.Context(), epochKey("one"), []string{"one"})
	if want := "8" + processEpoch; err != nil || mark.Epoch != want {
		t.Errorf("the mark says %q, %v; want %q", mark.Epoch, err, want)
	}
	store, err := bucket.NewMemory(rules, o.Clock.Now)
	if err != nil {
		t.Fatal(err)
	}
	checkpoints, err := newCheckpointer(t.Context(), o, one, store)
	if err != nil {
		t.Fatal(err)
	}
	store.ExpectSums(checkpoints.restored, false)
	if _, waits := store.Partial()["day"]; !waits {
		t.Error("the quota does not wait for the records of calls that were under way when Redis counted")
	}
}

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
	if err := takeOverFromRedis(t.Context(), o, &unit{name: "one", apis: []string{"one"}, rules: rules}); err != nil {
		t.Fatal(err)
	}
	s := &sharedLimits{api: "one", control: o.Control, js: o.JetStream}
	mark, err := s.readMark(t.Context(), epochKey("one"), []string{"one"})
	if want := "8" + processEpoch; err != nil || mark.Epoch != want {
		t.Errorf("the mark says %q, %v; want %q", mark.Epoch, err, want)
	}
}

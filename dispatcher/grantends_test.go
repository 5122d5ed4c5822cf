package dispatcher

import (
	"log/slog"
	"testing"
	"time"

	"weir/bucket"
	"weir/dispatcher/schedule"
)

// TestHeldSlotsWaitOnce checks that polls of operations do not add up while the store of slots does not answer, and that
// a slot which is held again after its end is held.
func TestHeldSlotsWaitOnce(t *testing.T) {
	g := &grantEnds{clock: schedule.OtherClock, log: slog.New(slog.DiscardHandler), tell: make(chan struct{}, 1)}
	hold := func(serial int64) bucket.Use {
		return bucket.Use{Key: "k", Grant: bucket.Grant{Serial: serial}, Hold: time.Hour}
	}
	for range 1000 {
		g.settle(t.Context(), []bucket.Use{hold(-1)})
		g.settle(t.Context(), []bucket.Use{hold(-2)})
	}
	g.settle(t.Context(), []bucket.Use{{Key: "k", Grant: bucket.Grant{Serial: 64}}, {Key: "k", Grant: bucket.Grant{Serial: 65}}})
	if len(g.ended) != 4 {
		t.Fatalf("%d ends wait", len(g.ended))
	}
	g.settle(t.Context(), []bucket.Use{{Key: "k", Grant: bucket.Grant{Serial: -1}}})
	g.settle(t.Context(), []bucket.Use{hold(-1)})
	if last := g.ended[len(g.ended)-1]; len(g.ended) != 6 || last.Grant.Serial != -1 || last.Hold == 0 {
		t.Errorf("%d ends wait, the last is %+v", len(g.ended), last)
	}
}

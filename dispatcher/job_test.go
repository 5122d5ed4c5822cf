package dispatcher

import (
	"testing"

	"weir/bucket"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/schedule"
)

// TestOrderBeforeTheStop checks that a job uses a slot that it was granted before the worker stopped. Otherwise the
// job's intent would stay behind, and a restart would treat the job as called.
func TestOrderBeforeTheStop(t *testing.T) {
	for range 200 {
		w := bareWorker(dispatcherOf(Options{}), "")
		orders := make(chan lane.Order, 1)
		orders <- lane.ToCall
		close(w.Stopped)
		if !w.caller.awaitSlot(t.Context(), &lane.Job{}, orders) {
			t.Fatal("a slot that had come was not used")
		}
		if w.caller.awaitSlot(t.Context(), &lane.Job{}, orders) {
			t.Fatal("a slot came after the stop")
		}
	}
}

// TestUnreadOperationsHoldSlots checks that no call starts before the process has read which operations hold slots of a
// limit that it has for itself, whatever clock the store of other limits has.
func TestUnreadOperationsHoldSlots(t *testing.T) {
	few := []bucket.Limit{{Name: "few", InFlight: 1, Replica: true}}
	for _, clock := range []schedule.StoreClock{schedule.OwnClock, schedule.OtherClock} {
		w := bareWorker(dispatcherOf(Options{}), "")
		w.Clock, w.Partitions = clock, make([]*lane.Owned, 1)
		w.Terms = &lane.Terms{API: &httpcall.API{Operation: &httpcall.Operation{HoldSlot: true}, Rules: bucket.Rules{Replica: few}}}
		if !w.slotsUnknownLocked() {
			t.Errorf("clock %d: the slots are known before any partition is read", clock)
		}
		w.Partitions[0] = &lane.Owned{}
		if w.slotsUnknownLocked() {
			t.Errorf("clock %d: the slots are unknown when all partitions are read", clock)
		}
	}
}

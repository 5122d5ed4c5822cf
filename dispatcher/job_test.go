package dispatcher

import (
	"testing"

	"weir/dispatcher/lane"
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

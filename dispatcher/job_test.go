package dispatcher

import (
	"testing"
)

// TestOrderBeforeTheStop checks that a slot that came before the worker stops is used. Otherwise the job's intent would
// stay behind, and a restart would take the job for called.
func TestOrderBeforeTheStop(t *testing.T) {
	for range 200 {
		w := bareWorker(dispatcherOf(Options{}), "")
		orders := make(chan order, 1)
		orders <- toCall
		close(w.stopped)
		if !w.caller.awaitSlot(t.Context(), &job{}, orders) {
			t.Fatal("a slot that had come was not used")
		}
		if w.caller.awaitSlot(t.Context(), &job{}, orders) {
			t.Fatal("a slot came after the stop")
		}
	}
}

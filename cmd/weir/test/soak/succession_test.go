package soak

import (
	"fmt"
	"testing"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/weirtest"
)

// TestSuccessorTakesOverAtOnce: the successor of a weir that was killed on its machine, with an external server, does
// not wait for its lease.
func TestSuccessorTakesOverAtOnce(t *testing.T) {
	t.Parallel()
	r := weirtest.NewReplicas(t, weirtest.OneServer(t), 1, fmt.Sprintf(weirtest.ReplicaAPI, weirtest.NotIdempotent), "WEIR_STATE_DIR="+t.TempDir())
	for atOnce, tries := 0, 1; atOnce < 2; tries++ {
		r.Procs[0].Kill()
		killed := time.Now()
		r.StartOne(0) // returns when it dispatches
		if took := time.Since(killed); took <= lease.Term {
			atOnce++
		} else if tries >= 6 { // a machine that is slow once is not slow each time
			t.Fatalf("its successor was ready after %v: it has waited for the lease", took)
		}
	}
}

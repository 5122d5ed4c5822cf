package weirtest

import (
	"strings"
	"time"
)

// AwaitEnd waits until the worker has ended.
func (r *Rig) AwaitEnd() {
	r.T.Helper()
	select {
	case <-r.Worker.Done():
	case <-time.After(Patience):
		r.T.Fatal("the worker does not end")
	}
}

// DispatchHeld reports whether the api ext holds its calls.
func (r *Rig) DispatchHeld() bool {
	return strings.Contains(r.Get("/metrics"), `weir_held{api="ext"} 1`)
}

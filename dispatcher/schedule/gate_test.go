package schedule

import (
	"testing"
	"time"
)

// TestGate checks that a gate is shut until its time, and that it is opened at once by what opens it.
func TestGate(t *testing.T) {
	var g gate
	if g.isShut(someTime) || !g.isPlenty(someTime) {
		t.Error("a gate is shut before anything was refused")
	}
	g.shut("account", someTime.Add(time.Second))
	if !g.isShut(someTime) || g.isShut(someTime.Add(time.Second)) {
		t.Errorf("shut for a second: %+v", g)
	}
	if g.open(); g.isShut(someTime) || g.by != "" {
		t.Errorf("opened: %+v", g)
	}
}

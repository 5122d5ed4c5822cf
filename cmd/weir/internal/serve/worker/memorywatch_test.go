package worker

import (
	"log/slog"
	"testing"

	"weir/bucket/queue"
)

// TestMemoryWatch checks that a memoryWatch refuses jobs while the heap is nearly full, and returns memory once when
// the process is quiet.
func TestMemoryWatch(t *testing.T) {
	h := queue.NewHoldings(1 << 30)
	m := &memoryWatch{holdings: h, heap: 1000, log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		live  int64
		tight bool
	}{{800, false}, {950, true}, {850, true}, {700, false}, {850, false}} {
		m.judge(heapState{live: c.live})
		if h.Tight() != c.tight {
			t.Errorf("with %d of 1000 in use: tight %t", c.live, h.Tight())
		}
	}

	m = &memoryWatch{holdings: h, heap: 1 << 40, log: slog.New(slog.DiscardHandler)}
	busy := heapState{resident: 1 << 40}
	for range 3 * quietLooks {
		busy.cycles++
		m.look(busy)
	}
	if m.returned != 0 {
		t.Error("memory was given back while the collector was at work")
	}
	for range quietLooks {
		m.look(busy)
	}
	if m.returned == 0 {
		t.Fatal("no memory was given back when the process was quiet")
	}
	after, quiet := m.returned, heapState{resident: m.returned + 1, cycles: m.cycles}
	for range 3 * quietLooks {
		m.look(quiet)
	}
	if m.returned != after || m.cycles != quiet.cycles {
		t.Error("memory was given back again where there is no more than after the last time")
	}
}

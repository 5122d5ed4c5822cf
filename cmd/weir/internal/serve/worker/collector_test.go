package worker

import (
	"runtime"
	"runtime/debug"
	"testing"

	"weir/ingest/await"
)

func TestPercentFor(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live, idle int64
		percent    int
	}{
		{0, 64 * mb, 1600}, // nothing is in use yet: Go begins with 4 MB
		{8 * mb, 64 * mb, 800},
		{64 * mb, 64 * mb, 100},
		{640 * mb, 64 * mb, 100},
	} {
		if got := percentFor(c.live, c.idle); got != c.percent {
			t.Errorf("%d MB kept, %d MB idle: %d %%, want %d", c.live/mb, c.idle/mb, got, c.percent)
		}
	}
	if got := idleHeap(100 * mb); got != 100*mb/8 {
		t.Errorf("a small process lets %d bytes lie", got)
	}
}

// TestCollectorIsSpared checks that the heap may grow by the idle bytes, and by as much as is in use if that is more.
func TestCollectorIsSpared(t *testing.T) {
	t.Setenv("GOGC", "")
	was := debug.SetGCPercent(doubled)
	t.Cleanup(func() { debug.SetGCPercent(was) })
	spareCollector(1 << 30)
	percent := func() int {
		p := debug.SetGCPercent(doubled)
		debug.SetGCPercent(p)
		return p
	}
	await.Until(t, "the collector to run less often than each time that the heap has doubled", func() bool {
		runtime.GC()
		return percent() > doubled
	})
}

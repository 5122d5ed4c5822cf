package worker

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The Go collector runs each time the heap has doubled. weir keeps some 10 MB and allocates 40 KB per job, so under
// load the collector would run 20 times a second. Each run empties the pools in which the server and the HTTP client
// keep their buffers.

const (
	mostIdleHeap = 64 << 20 // bytes that may be allocated between two runs, however small the heap is
	idleHeapPart = 8        // of the soft limit, in a small process
	leastHeap    = 4 << 20  // bytes: Go takes a smaller heap for this large, and lets it grow by as much
	doubled      = 100      // percent: Go's default
	sameEnough   = 10       // percent by which a new value must differ: setting one stops the process for some microseconds
)

// spareCollector makes the collector run at most once per idle bytes allocated; the heap may always double. The soft
// limit still holds: close to it the collector runs as often as it must. A GOGC that is set stays.
func spareCollector(idle int64) {
	if os.Getenv("GOGC") == "" {
		(&collector{idle: idle, percent: doubled}).await()
	}
}

// idleHeap returns how many bytes may be allocated between two runs under a soft limit.
func idleHeap(soft int64) int64 { return min(mostIdleHeap, soft/idleHeapPart) }

// collector sets after each run when the next one is due.
type collector struct {
	idle    int64
	percent int
}

// await makes the next run of the collector visible: the run finds what await leaves behind.
func (c *collector) await() {
	sentinel := new([16]byte) // large enough not to share its block with other values
	runtime.AddCleanup(sentinel, func(c *collector) { c.ran() }, c)
}

func (c *collector) ran() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	percent := percentFor(int64(sample[0].Value.Uint64()), c.idle)
	if 100*max(percent, c.percent) > (100+sameEnough)*min(percent, c.percent) {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
	c.await()
}

// percentFor returns by how many percent the heap may grow.
func percentFor(live, idle int64) int { return int(max(doubled, 100*idle/max(live, leastHeap))) }

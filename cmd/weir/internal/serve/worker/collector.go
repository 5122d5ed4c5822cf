package worker

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The Go collector runs each time the heap has doubled. weir's heap is about 10 MB, and each job allocates 40 KB, so
// under load the collector would run 20 times a second. Each run empties the pools in which the server and the HTTP
// client keep their buffers.

const (
	mostIdleHeap = 64 << 20 // the most bytes allocated between two runs while the heap is small
	idleHeapPart = 8        // in a small process: this part of the soft limit instead (one eighth)
	leastHeap    = 4 << 20  // bytes: Go treats a smaller heap as if it had this size
	doubled      = 100      // percent: Go's default
	sameEnough   = 10       // percent by which a new value must differ, because setting a value stops the process for some microseconds
)

// spareCollector makes the collector wait until idle bytes were allocated since its last run, or until the heap has
// doubled, whichever is more. The soft limit still holds: near it the collector runs as often as needed. spareCollector
// does nothing if GOGC is set.
func spareCollector(idle int64) {
	if os.Getenv("GOGC") == "" {
		(&collector{idle: idle, percent: doubled}).await()
	}
}

// idleHeap returns how many bytes may be allocated between two runs. soft is the soft limit in bytes.
func idleHeap(soft int64) int64 { return min(mostIdleHeap, soft/idleHeapPart) }

// collector decides after each run of Go's collector when the next one is due.
type collector struct {
	idle    int64
	percent int
}

// await makes the runtime call ran after the collector's next run. That run frees the sentinel, and the sentinel's
// cleanup calls ran.
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

// percentFor returns the value for GOGC: by how many percent the live heap may grow.
func percentFor(live, idle int64) int { return int(max(doubled, 100*idle/max(live, leastHeap))) }

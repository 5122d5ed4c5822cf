package worker

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// The Go collector runs each time that the heap has doubled. weir keeps some ten megabytes and allocates forty kilobytes a job: under load it
// would run twenty times a second, and empty the pools that the server and the HTTP client keep their buffers in each time.

const (
	mostIdleHeap = 64 << 20 // bytes that may be allocated between two runs, however little is kept
	idleHeapPart = 8        // of the soft limit, in a small process
	leastHeap    = 4 << 20  // bytes: below them Go takes a heap for as large, and has it grow by as much
	doubled      = 100      // per cent: what the collector does by itself
	sameEnough   = 10       // per cent, by which a new value must differ: setting one stops the process for some microseconds
)

// spareCollector has the collector run no more often than every time that idle bytes were allocated; the heap may always double. The soft limit
// holds beside it: close to that the collector runs as often as it must. A GOGC stays as it is set.
func spareCollector(idle int64) {
	if os.Getenv("GOGC") == "" {
		(&collector{idle: idle, percent: doubled}).await()
	}
}

// idleHeap is what may be allocated between two runs under a soft limit.
func idleHeap(soft int64) int64 { return min(mostIdleHeap, soft/idleHeapPart) }

// collector sets after each run when the next one is.
type collector struct {
	idle    int64
	percent int
}

// await has the next run of the collector be noticed: it finds what await leaves behind.
func (c *collector) await() {
	sentinel := new([16]byte) // not so small that it shares its place with others
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

// percentFor is by how much the heap may grow.
func percentFor(live, idle int64) int { return int(max(doubled, 100*idle/max(live, leastHeap))) }

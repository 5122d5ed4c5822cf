package worker

import (
	"context"
	"log/slog"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"weir/bucket/queue"
)

// memoryWatch measures the whole heap, because the counts of the holdings do not cover all of it. It also returns
// unused memory to the kernel.
//
// The collector runs when the heap has grown. The heap no longer grows after a queue has drained, so without
// memoryWatch the queue's memory would stay resident. When the process is quiet and holds more memory than after the
// last return, memoryWatch runs the collector once and returns memory.
type memoryWatch struct {
	holdings *queue.Holdings
	heap     int64 // bytes: the bound of the heap
	log      *slog.Logger

	cycles   uint64 // runs of the collector up to the last look
	quiet    int    // the number of looks in a row that saw no run of the collector
	returned int64  // resident bytes after memory was last returned
}

const (
	memoryLook = time.Second
	quietLooks = 5 // looks without a run of the collector after which the process counts as quiet
	// worthReturn is in bytes. A collection is worthwhile if the resident memory has grown by a fourth and worthReturn.
	worthReturn = 16 << 20

	// tightAt and looseAt are percentages of the heap's bound. Above tightAt weir refuses jobs; below looseAt it accepts
	// them again.
	tightAt, looseAt = 90, 80
)

func (m *memoryWatch) run(ctx context.Context) error {
	tick := time.NewTicker(memoryLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.look(readHeap())
		case <-ctx.Done():
			return nil
		}
	}
}

// heapState is what the Go runtime reports about its memory.
type heapState struct {
	live     int64 // bytes in use at the last collection
	resident int64 // bytes not returned to the kernel
	cycles   uint64
}

func readHeap() heapState {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	return heapState{live: int64(value(0)), resident: int64(value(1) - value(2)), cycles: value(3)}
}

func (m *memoryWatch) look(h heapState) {
	m.judge(h)
	if h.cycles != m.cycles {
		m.cycles, m.quiet = h.cycles, 0
		return
	}
	if m.quiet++; m.quiet < quietLooks {
		return
	}
	m.quiet = 0
	if h.resident > m.returned+m.returned/4+worthReturn || m.holdings.Tight() {
		debug.FreeOSMemory()
		h = readHeap()
		m.returned, m.cycles = h.resident, h.cycles
		m.judge(h)
	}
}

// judge makes the intake refuse jobs while the live heap is near its bound.
func (m *memoryWatch) judge(h heapState) {
	switch tight := m.holdings.Tight(); {
	case !tight && h.live > m.heap/100*tightAt:
		m.holdings.SetTight(true)
		m.log.Error("the memory is nearly full: intake refuses jobs until there is room; raise rates so that more jobs are called, or raise WEIR_MEMORY",
			"live_bytes", h.live, "most_bytes", m.heap)
	case tight && h.live < m.heap/100*looseAt:
		m.holdings.SetTight(false)
		m.log.Info("memory has room again: intake accepts jobs", "live_bytes", h.live, "most_bytes", m.heap)
	}
}

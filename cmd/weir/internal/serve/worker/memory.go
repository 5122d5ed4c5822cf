package worker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"weir/bucket/queue"
	"weir/cmd/weir/internal/config"
)

// memory is how much the process may hold, and the source of that limit.
type memory struct {
	limit  int64  // bytes resident
	source string // of the limit
	soft   int64  // the bound that the Go runtime keeps its memory within
}

// SetMemory finds out how much the process may hold, and makes the collector keep within it. Without that, the
// collector leaves as much memory unused as is used, and the kernel could end a process that has room. A GOMEMLIMIT
// that is set stays.
func SetMemory(s *config.Settings, log *slog.Logger) error {
	m, err := findMemory(s.Memory, surroundings{root: "/", goLimit: debug.SetMemoryLimit(-1)})
	if err != nil {
		return err
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.soft)
	}
	spareCollector(idleHeap(m.soft))
	s.Memory = m.limit
	log.Info("memory is bounded", "limit_bytes", m.limit, "from", m.source, "heap_bytes", softMemory(m.limit))
	return nil
}

// surroundings is what findMemory inspects.
type surroundings struct {
	root    string // of the file system
	goLimit int64  // the Go runtime's, math.MaxInt64 for none
}

// findMemory returns what WEIR_MEMORY says, or else what the process is allowed, or else half of the machine's memory.
// A limit of the kernel below WEIR_MEMORY counts instead: the kernel would end the process.
func findMemory(asked int64, on surroundings) (memory, error) {
	found := memory{limit: asked, source: "WEIR_MEMORY"}
	lower := func(limit int64, source string) {
		if limit > 0 && (found.limit == 0 || limit < found.limit) {
			found.limit, found.source = limit, source
		}
	}
	limit, file := on.cgroupLimit()
	lower(limit, file)
	if asked == 0 && on.goLimit != math.MaxInt64 {
		lower(on.goLimit, "GOMEMLIMIT")
	}
	if found.limit == 0 {
		lower(on.total()/2, "half of this machine's memory")
	}
	if found.limit == 0 {
		lower(unknownMemory, "nothing tells what there is")
	}
	if found.limit < config.LeastMemory {
		return memory{}, fmt.Errorf("%s allows %d MiB of memory, weir needs %d: raise it", found.source, found.limit>>20, config.LeastMemory>>20)
	}
	found.soft = softMemory(found.limit)
	return found, nil
}

// unknownMemory is the limit if not even the machine's memory can be read.
const unknownMemory = 1 << 30

// softMemory returns the part of a limit that the Go runtime may use. The program itself is resident too, and the
// runtime exceeds its limit by what is allocated during a collection.
func softMemory(limit int64) int64 { return (limit - program) / 10 * 9 }

// program is what the pages of the binary take, and what the kernel counts beside the runtime's memory.
const program = 32 << 20

// cgroupLimit returns the lowest limit of the process's control groups, and its file; 0 if there is none. A group's
// parents bind too. In a container the group may be mounted as the root, so the root is read too.
func (on surroundings) cgroupLimit() (limit int64, file string) {
	text, err := os.ReadFile(filepath.Join(on.root, "proc/self/cgroup"))
	if err != nil {
		return 0, ""
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		switch {
		case fields[0] == "0" && fields[1] == "":
			for _, mount := range []string{"sys/fs/cgroup", "sys/fs/cgroup/unified"} {
				on.lowest(mount, fields[2], []string{"memory.max", "memory.high"}, &limit, &file)
			}
		case strings.Contains(","+fields[1]+",", ",memory,"):
			on.lowest("sys/fs/cgroup/memory", fields[2], []string{"memory.limit_in_bytes"}, &limit, &file)
		}
	}
	return limit, file
}

// lowest looks for limits from a group up to the root of its hierarchy.
func (on surroundings) lowest(mount, group string, names []string, limit *int64, file *string) {
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		for _, name := range names {
			at := path.Join("/", mount, dir, name)
			text, err := os.ReadFile(filepath.Join(on.root, at))
			if err != nil {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64) // "max" is no number
			if err == nil && n > 0 && n < unlimited && (*limit == 0 || n < *limit) {
				*limit, *file = n, at
			}
		}
		if dir == "/" {
			return
		}
	}
}

// unlimited is the value from which a limit means none: an unset limit of cgroup v1 is nearly as large as a number can
// be.
const unlimited = 1 << 60

// total is the machine's memory, 0 if it cannot be read.
func (on surroundings) total() int64 {
	text, err := os.ReadFile(filepath.Join(on.root, "proc/meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kib << 10
		}
	}
	return 0
}

// bound creates the holdings of the worker. If no limit was set, it finds one. The collector stays the concern of the
// process that runs the worker.
func (w *bodies) bound() error {
	if w.settings.Memory == 0 {
		m, err := findMemory(0, surroundings{root: "/", goLimit: debug.SetMemoryLimit(-1)})
		if err != nil {
			return err
		}
		w.settings.Memory = m.limit
	}
	w.holdings = queue.NewHoldings(softMemory(w.settings.Memory))
	return nil
}

// fitsMemory refuses queues that this process must hold and cannot: the kernel would end it in the middle of every
// start. With an external server other replicas may take part of them.
func (w *Worker) fitsMemory() error {
	if w.server == nil || w.dispatch == nil {
		return nil
	}
	var keys, jobs int64
	for _, a := range w.opened {
		k, j := a.queue.Found()
		keys, jobs = keys+k, jobs+j
	}
	if err := w.holdings.Opens(keys, jobs); err != nil {
		return fmt.Errorf("the queues do not fit into memory: %w: raise WEIR_MEMORY, or the limit of the process; nothing is lost", err)
	}
	return nil
}

// watchMemory checks the heap until ctx ends.
func (w *bodies) watchMemory(ctx context.Context) error {
	watch := memoryWatch{holdings: w.holdings, heap: softMemory(w.settings.Memory), log: w.log.With("component", "memory")}
	return watch.run(ctx)
}

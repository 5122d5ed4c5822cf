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
	"weir/cmd/weir/internal/config/environment"
)

// memory is how much memory the process may hold, and the source of that limit.
type memory struct {
	limit  int64  // bytes that may be resident
	source string // what the limit comes from
	soft   int64  // bytes: the memory limit of the Go runtime
}

// SetMemory determines how much memory the process may hold, stores that in s, and sets Go's memory limit. Without Go's
// limit the collector would let the heap grow to twice what is in use, and the kernel could end a process that needs
// less. If GOMEMLIMIT is set, SetMemory does not change Go's limit.
func SetMemory(s *environment.Settings, log *slog.Logger) error {
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

// surroundings are the parts of the environment that findMemory inspects.
type surroundings struct {
	root    string // the root of the file system
	goLimit int64  // the Go runtime's limit; math.MaxInt64: none is set
}

// findMemory returns the value of WEIR_MEMORY, or else the limit of the process, or else half of the machine's memory.
// If the kernel's limit is lower than WEIR_MEMORY, findMemory returns the kernel's limit, because the kernel would end
// the process.
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
	if found.limit < environment.LeastMemory {
		return memory{}, fmt.Errorf("%s allows %d MiB of memory, weir needs %d: raise it", found.source, found.limit>>20, environment.LeastMemory>>20)
	}
	found.soft = softMemory(found.limit)
	return found, nil
}

// unknownMemory is the limit if not even the machine's memory can be read.
const unknownMemory = 1 << 30

// softMemory returns the part of a limit, in bytes, that the Go runtime may use. The rest is for the resident pages of
// the binary, and for allocations during a collection, by which the runtime exceeds its limit.
func softMemory(limit int64) int64 { return (limit - program) / 10 * 9 }

// program is the memory of the binary's pages, and of what the kernel counts in addition to the runtime's memory.
const program = 32 << 20

// cgroupLimit returns the lowest limit of the process's control groups, and the file that has that limit. It returns 0
// if there is no limit. The limits of parent groups apply too. A container may mount its group as the root, so the root
// is read too.
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

// lowest lowers limit to the lowest limit of a group and its parents, up to the root of the hierarchy, and sets file to
// match.
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

// unlimited is the smallest value that counts as no limit. An unset limit of cgroup v1 is nearly 2^63.
const unlimited = 1 << 60

// total returns the machine's memory in bytes, 0 if it cannot be read.
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

// bound creates the holdings, which bound the memory of queues. If no limit was set, bound determines one. It leaves
// Go's memory limit to the process that runs the worker.
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

// fitsMemory fails if the queues do not fit into memory, because otherwise the kernel would end the process during
// every start. It checks only with the embedded server: with an external server other replicas may take part of the
// queues.
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

// watchMemory runs a memoryWatch until ctx ends.
func (w *bodies) watchMemory(ctx context.Context) error {
	watch := memoryWatch{holdings: w.holdings, heap: softMemory(w.settings.Memory), log: w.log.With("component", "memory")}
	return watch.run(ctx)
}

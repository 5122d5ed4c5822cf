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

// memory is what the process may hold, and who says so.
type memory struct {
	limit  int64  // bytes resident
	source string // of the limit
	soft   int64  // what the Go runtime keeps its memory within
}

// SetMemory finds out how much the process may hold, and has the collector keep within it: without that it leaves as much
// unused as is used, and the kernel ends a process that would have had room. A GOMEMLIMIT stays as it is set.
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

// surroundings is what findMemory looks at.
type surroundings struct {
	root    string // of the file system
	goLimit int64  // the Go runtime's, math.MaxInt64 for none
}

// findMemory is what WEIR_MEMORY says, or what the process is allowed otherwise, or half of the machine's memory. A limit of the
// kernel's that is lower than WEIR_MEMORY counts: it would end the process.
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

// unknownMemory is the limit where not even the machine's memory can be read.
const unknownMemory = 1 << 30

// softMemory is what of a limit the Go runtime may use: the program itself is resident, too, and the runtime goes over its limit by
// what is allocated while it collects.
func softMemory(limit int64) int64 { return (limit - program) / 10 * 9 }

// program is what the pages of the binary take, and what the kernel counts beside the runtime's memory.
const program = 32 << 20

// cgroupLimit is the lowest limit of the groups that the process is in, and where it stands; 0 where there is none. A group's
// parents bind as well. Within a container its group may be mounted as the root, so the root is looked at, too.
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

// unlimited is from when on a limit is none: an unset one of the first version of control groups is nearly as large as a
// number can be.
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

// bound makes the holdings of the worker. One that is not told what there is takes what it finds; the collector is whoever
// runs the process's business.
func (w *Worker) bound() error {
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

// fitsMemory refuses queues that this process must hold and cannot: the kernel would end it in the middle of every start. Of an
// external server's other replicas may have their share.
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

// watchMemory looks after the heap until ctx ends.
func (w *Worker) watchMemory(ctx context.Context) error {
	watch := memoryWatch{holdings: w.holdings, heap: softMemory(w.settings.Memory), log: w.log.With("component", "memory")}
	return watch.run(ctx)
}

package torture

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/nats-io/nats.go"
)

// memoryVariable sets how much memory weir may keep resident. A weir that does not know this variable warns and
// continues.
const memoryVariable = "WEIR_MEMORY"

// memoryLimits are the values of memoryVariable, in MiB: little, enough, and more than weir needs.
var memoryLimits = []int{128, 256, 1024}

// The load under a memory limit. All of it is submitted at once.
const (
	largeKeys, largeJobs, largeBody = 4, 10, 200 << 10
	manyKeys, manyAtOnce            = 200, 8

	limitMemory kind = "memory limits"
)

// memoryMargin returns how far the resident maximum may exceed the limit, in MiB. weir cannot count its program and the
// mapped files of the store.
func memoryMargin(limit int) int { return 48 + limit/4 }

// memoryLife is one life of weir under a memory limit.
type memoryLife struct {
	Limit int  `json:"limit_mib"`
	Peak  int  `json:"peak_mib"` // the resident maximum; 0 if unknown
	Died  bool `json:"died"`     // weir ended without being killed by the torture
}

// knowsMemory reports whether a program contains the name of memoryVariable.
func knowsMemory(program string) bool {
	text, err := os.ReadFile(program)
	return err == nil && bytes.Contains(text, []byte(memoryVariable))
}

// endCrowded submits large jobs and jobs of many keys at once, and ends a life under a memory limit. It returns false
// if the process was started without that limit, or if weir ended for another reason.
func (s *lives) endCrowded(ctx context.Context, p *process, l life) bool {
	if p.memory != l.memory { // the process was started for an earlier life
		s.weir.kill(p, "")
		return false
	}
	s.producing.crowd(ctx, s.producing.crowds.Add(1))
	gone := p.Gone(ctx, l.delay)
	lived := memoryLife{Limit: l.memory, Peak: peak(p), Died: gone && p.died() && !p.felled.Load()}
	if gone && !lived.Died {
		s.weir.endedByItself(p, nil)
		return false
	}
	if gone {
		s.weir.endedByItself(p, nil)
	} else {
		s.weir.kill(p, "")
	}
	s.record.lived(lived)
	s.record.count(limitMemory)
	return true
}

// died reports whether a signal or the Go runtime ended the process, not weir itself. The process must be gone.
func (p *process) died() bool {
	const fatal = 2
	status, ok := p.State().Sys().(syscall.WaitStatus)
	return ok && (status.Signaled() || status.ExitStatus() == fatal)
}

// peak returns the most memory that a process ever had resident, in MiB, or 0 if unknown.
func peak(p *process) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, _ := strconv.Atoi(strings.Fields(rest)[0])
			return kib / 1024
		}
	}
	return 0
}

// crowd submits large jobs and jobs of many keys in the background.
func (p *producers) crowd(ctx context.Context, number int64) {
	nc := p.conns[0]
	for k := range largeKeys {
		p.work.Go(func() {
			key := fmt.Sprintf("large%d", k)
			for n := range largeJobs {
				p.submitLarge(ctx, nc, key, fmt.Sprintf("%s-%d-%02d", key, number, n))
			}
		})
	}
	var next sync.Mutex
	left := manyKeys
	for range manyAtOnce {
		p.work.Go(func() {
			for {
				next.Lock()
				left--
				n := left
				next.Unlock()
				if n < 0 {
					return
				}
				key := fmt.Sprintf("many%d", n)
				p.report(p.submit(ctx, nc, job{key: key, id: fmt.Sprintf("%s-%d", key, number)}))
			}
		})
	}
}

// submitLarge sends a job whose body is too large for the api's ledger. The query has the job's id.
func (p *producers) submitLarge(ctx context.Context, nc *nats.Conn, key, id string) {
	p.report(p.submit(ctx, nc, job{key: key, id: id, large: []byte(strconv.Quote(strings.Repeat("x", largeBody)))}))
}

// judgeMemory compares the resident memory of each life with its limit, if weir knows the limit.
func (e *Evidence) judgeMemory(r *Report) {
	r.Memory = e.Memory
	for _, l := range e.Memory {
		if l.Died {
			r.MemoryDied++
		}
		if e.KnowsMemory && l.Peak > l.Limit+memoryMargin(l.Limit) {
			r.MemoryOver++
			r.example("memory", fmt.Sprintf("%d MiB resident of %d", l.Peak, l.Limit))
		}
	}
}

// peaks describes the largest peak under each limit.
func peaks(lives []memoryLife) string {
	most := map[int]int{}
	for _, l := range lives {
		most[l.Limit] = max(most[l.Limit], l.Peak)
	}
	var all []string
	for _, limit := range slices.Sorted(maps.Keys(most)) {
		all = append(all, fmt.Sprintf("%d MiB resident at the most under %d", most[limit], limit))
	}
	return strings.Join(all, ", ")
}

package torture

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"

	"github.com/nats-io/nats.go"
)

// knowsMemory reports whether a program contains the name of MemoryVariable.
func knowsMemory(program string) bool {
	text, err := os.ReadFile(program)
	return err == nil && bytes.Contains(text, []byte(plan.MemoryVariable))
}

// endCrowded submits large jobs and jobs of many keys at once, and ends a life under a memory limit. It returns false
// if the process was started without that limit, or if weir ended for another reason.
func (s *lives) endCrowded(ctx context.Context, p *process, l plan.Life) bool {
	if p.memory != l.Memory { // the process was started for an earlier life
		s.weir.kill(p, "")
		return false
	}
	s.producing.crowd(ctx, s.producing.crowds.Add(1))
	gone := p.Gone(ctx, l.Delay)
	lived := judge.MemoryLife{Limit: l.Memory, Peak: peak(p), Died: gone && p.died() && !p.felled.Load()}
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
	s.record.count(plan.LimitMemory)
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
	for k := range plan.LargeKeys {
		p.work.Go(func() {
			key := fmt.Sprintf("large%d", k)
			for n := range plan.LargeJobs {
				p.submitLarge(ctx, nc, key, fmt.Sprintf("%s-%d-%02d", key, number, n))
			}
		})
	}
	var next sync.Mutex
	left := plan.ManyKeys
	for range plan.ManyAtOnce {
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
				p.report(p.submit(ctx, nc, plan.Job{Key: key, ID: fmt.Sprintf("%s-%d", key, number)}))
			}
		})
	}
}

// fill submits large jobs of some keys, and waits until each of them was answered.
func (p *producers) fill(ctx context.Context, keys []string) {
	number := p.crowds.Add(1)
	var submitting sync.WaitGroup
	for i, key := range keys {
		submitting.Go(func() {
			for n := range plan.BlockJobs {
				p.submitLarge(ctx, p.conns[i%len(p.conns)], key, fmt.Sprintf("%s-%d-%02d", key, number, n))
			}
		})
	}
	submitting.Wait()
}

// submitLarge sends a job whose body is too large for the api's ledger. The query has the job's id.
func (p *producers) submitLarge(ctx context.Context, nc *nats.Conn, key, id string) {
	p.report(p.submit(ctx, nc, plan.Job{Key: key, ID: id, Large: []byte(strconv.Quote(strings.Repeat("x", plan.LargeBody)))}))
}

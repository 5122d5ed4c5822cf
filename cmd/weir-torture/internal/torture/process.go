package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"weir/cmd/internal/child"
	"weir/cmd/weir-torture/internal/plan"
)

// process is one child process. It is safe for concurrent use.
type process struct {
	*child.Process
	name   string
	ready  chan struct{} // closed when the process has written its mark
	marked string        // the line with the mark; read it only after ready is closed
	began  time.Time
	memory int         // its memory limit in MiB; 0: none
	felled atomic.Bool // the torture killed it outside the plan of its lives
}

// program describes how to start a process.
type program struct {
	name string
	path string // empty: weir
	args []string
	env  []string // in addition to this process's environment, from which weir's settings are left out
	mark string   // the process writes this when it is ready
}

// programs starts the processes of a run. Each has a log in the run's directory.
type programs struct {
	o      *plan.Options
	record *record
}

// start starts weir or another program. It does not wait until the process is ready.
func (s *programs) start(p program) (*process, error) {
	log, err := os.OpenFile(filepath.Join(s.o.Dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	started := &process{name: p.name, ready: make(chan struct{}), began: time.Now()}
	started.Process, err = child.Start(child.Options{
		Name: p.name, Path: cmp.Or(p.path, s.o.Binary), Args: p.args, Env: p.env, Dir: s.o.Dir, Attributes: s.o.Attributes, Log: log,
		Line: func(line string) {
			s.record.hear(line)
			if !started.isReady() && strings.Contains(line, p.mark) {
				started.marked = line
				close(started.ready)
			}
		},
	})
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		<-started.Exited()
		_ = log.Close()
	}()
	return started, nil
}

var errGone = errors.New("the process ended before it was ready")

// awaitReady waits until the process is ready. It fails if the process ends before, after limit, or if ctx ends.
func (p *process) awaitReady(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.Exited():
		if p.isReady() {
			return nil
		}
		return fmt.Errorf("%s: %w:\n%s", p.name, errGone, p.Tail())
	case <-timer.C:
		return fmt.Errorf("%s was not ready within %v:\n%s", p.name, limit, p.Tail())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isReady reports whether the process has written its mark.
func (p *process) isReady() bool {
	select {
	case <-p.ready:
		return true
	default:
		return false
	}
}

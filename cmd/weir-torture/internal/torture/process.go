package torture

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"weir/cmd/internal/machine"
)

// process is one child. It is safe for concurrent use.
type process struct {
	name   string
	cmd    *exec.Cmd
	ready  chan struct{} // closed when it has written what it was waited for
	exited chan struct{} // closed when it is gone
	watch  *watch
	began  time.Time
	memory int         // MiB that it was told to hold at the most; 0: nothing
	felled atomic.Bool // it was killed beside its plan
}

// program says how to start a process.
type program struct {
	name string
	path string // empty: weir
	args []string
	env  []string // besides this process's own, without weir's settings
	mark string   // what it writes when it is ready
}

// start runs weir, or another program.
func (s *stage) start(p program) (*process, error) {
	log, err := os.OpenFile(filepath.Join(s.o.Dir, p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	w := &watch{log: log, mark: p.mark, ready: make(chan struct{})}
	cmd := exec.Command(cmp.Or(p.path, s.o.Binary), p.args...)
	cmd.Env = append(machine.PlainEnv(), p.env...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.o.Dir, w, w
	if s.o.Attributes != nil {
		cmd.SysProcAttr = s.o.Attributes()
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", p.name, err), log.Close())
	}
	child := &process{name: p.name, cmd: cmd, ready: w.ready, exited: make(chan struct{}), watch: w, began: began}
	go func() {
		_ = cmd.Wait() // the process state tells more
		_ = log.Close()
		close(child.exited)
	}()
	return child, nil
}

var errGone = errors.New("the process ended before it was ready")

// awaitReady blocks until the process is ready, gone, or limit has passed.
func (p *process) awaitReady(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.exited:
		return fmt.Errorf("%s: %w:\n%s", p.name, errGone, p.watch.tail())
	case <-timer.C:
		return fmt.Errorf("%s was not ready within %v:\n%s", p.name, limit, p.watch.tail())
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// gone blocks until the process has ended and reports true, or false after limit or when ctx ends.
func (p *process) gone(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only when it is gone already
	<-p.exited
}

// signal sends a signal, unless the process is gone.
func (p *process) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// stop ends the process in order, or by force after limit.
func (p *process) stop(limit time.Duration) error {
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	if p.gone(context.Background(), limit) {
		return nil
	}
	p.kill()
	return fmt.Errorf("%s did not stop within %v and was killed", p.name, limit)
}

// tailLines is how much of a process's output is kept for an error.
const tailLines = 20

// watch passes a process's output on to its log and looks for the line that says it is ready.
type watch struct {
	log   *os.File
	mark  string
	ready chan struct{}

	mu    sync.Mutex
	up    bool
	found string // the line with the mark
	part  []byte // of a line
	lines []string
}

func (w *watch) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.part = append(w.part, p...)
	for {
		line, rest, whole := bytes.Cut(w.part, []byte("\n"))
		if !whole {
			break
		}
		w.line(string(line))
		w.part = bytes.Clone(rest)
	}
	return w.log.Write(p)
}

func (w *watch) line(line string) {
	if len(w.lines) == tailLines {
		w.lines = w.lines[1:]
	}
	w.lines = append(w.lines, line)
	if !w.up && strings.Contains(line, w.mark) {
		w.up, w.found = true, line
		close(w.ready)
	}
}

func (w *watch) tail() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.lines, "\n")
}

// marked is the line that said the process is ready.
func (w *watch) marked() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.found
}

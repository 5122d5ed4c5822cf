//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// command says how to start a process.
type command struct {
	name string // in errors
	path string
	args []string
	env  []string // besides this process's own, without weir's settings
	dir  string
	as   *syscall.Credential // nil: this process's user
}

// process is a child that this program started. It is used by one goroutine.
type process struct {
	name   string
	cmd    *exec.Cmd
	in     io.WriteCloser
	lines  chan string // of its standard output; of those that nobody takes only the first are kept
	exited chan struct{}
	tail   tail
}

// untaken is how many lines of a process wait to be read.
const untaken = 256

func start(c command) (*process, error) {
	p := &process{name: c.name, lines: make(chan string, untaken), exited: make(chan struct{})}
	p.cmd = exec.Command(c.path, c.args...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WEIR_") {
			p.cmd.Env = append(p.cmd.Env, v)
		}
	}
	p.cmd.Env = append(p.cmd.Env, c.env...)
	p.cmd.Dir = c.dir
	// It dies with this process, however that ends, and Ctrl-C at the terminal is this process's alone: it ends its children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: c.as}
	p.cmd.Stderr = &p.tail
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	go func() {
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			select {
			case p.lines <- scanner.Text():
			default:
			}
			_, _ = fmt.Fprintln(&p.tail, scanner.Text())
		}
		_, _ = io.Copy(io.Discard, out) // what follows a line that is too long
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// await returns the first line that match is true of.
func (p *process) await(ctx context.Context, match func(string) bool) (string, error) {
	for {
		select {
		case line := <-p.lines:
			if match(line) {
				return line, nil
			}
		case <-p.exited:
			return "", fmt.Errorf("%s ended: %s\n%s", p.name, p.cmd.ProcessState, p.tail.String())
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %w\n%s", p.name, context.Cause(ctx), p.tail.String())
		}
	}
}

// order has a role do something and waits for its answer.
func (p *process) order(ctx context.Context, o order) (answer, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", p.name, err)
	}
	if _, err := p.in.Write(append(text, '\n')); err != nil {
		return answer{}, fmt.Errorf("%s: %w\n%s", p.name, err, p.tail.String())
	}
	return p.answer(ctx)
}

// answer waits for a role's next answer, of which the first says that it is there.
func (p *process) answer(ctx context.Context) (a answer, err error) {
	line, err := p.await(ctx, func(line string) bool { return strings.HasPrefix(line, "{") })
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal([]byte(line), &a); err != nil {
		return a, fmt.Errorf("%s answered %q: %w", p.name, line, err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s: %s", p.name, a.Error)
	}
	return a, nil
}

// endWithin is how long a process has for an orderly end.
const endWithin = 10 * time.Second

// end ends the process, at first in order. One that has ended is no error.
func (p *process) end(with syscall.Signal) error {
	_ = p.in.Close()
	_ = p.cmd.Process.Signal(with) // fails only when it is gone
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.exited
	return fmt.Errorf("%s did not end within %v and was killed", p.name, endWithin)
}

// tail keeps the end of what a process wrote. It is safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - tailBytes; over > 0 {
		t.text = slices.Delete(t.text, 0, over)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// done runs a command to its end and returns what it wrote.
func done(ctx context.Context, c command) (string, error) {
	cmd := exec.CommandContext(ctx, c.path, c.args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: c.as}
	out, err := cmd.CombinedOutput()
	if err != nil {
		last := out[max(0, len(out)-600):]
		return "", fmt.Errorf("%s: %w: %s", c.name, errors.Join(err, context.Cause(ctx)), strings.TrimSpace(string(last)))
	}
	return strings.TrimSpace(string(out)), nil
}

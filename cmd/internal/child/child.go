package child

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/cmd/internal/machine"
)

// Options configure a child process. Name and Path are required.
type Options struct {
	Name       string // for errors
	Path       string
	Args       []string
	Env        []string // added to this process's own environment without weir's settings
	Dir        string   // "": this process's own directory
	Attributes func() *syscall.SysProcAttr
	Input      io.Reader // nil: no input
	// Log receives all output. Line receives each whole line of it before Log does. One goroutine calls both.
	Log  io.Writer
	Line func(line string)
}

// Process is a child process. It is safe for concurrent use.
type Process struct {
	name   string
	cmd    *exec.Cmd
	output *output
	exited chan struct{} // closed when the process is gone and its output was read
}

// Start starts a process and does not wait for it.
func Start(o Options) (*Process, error) {
	cmd := exec.Command(o.Path, o.Args...)
	out := &output{log: o.Log, line: o.Line}
	cmd.Env = append(machine.PlainEnv(), o.Env...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Dir, o.Input, out, out
	if o.Attributes != nil {
		cmd.SysProcAttr = o.Attributes()
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", o.Name, err)
	}
	p := &Process{name: o.Name, cmd: cmd, output: out, exited: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // State returns how the process ended
		close(p.exited)
	}()
	return p, nil
}

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process is gone and its output has been read.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State returns how the process ended. Call it only after Exited is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Gone waits until the process has ended, and then returns true. It returns false if limit passes or ctx ends first.
func (p *Process) Gone(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
	case <-ctx.Done():
	}
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the process, unless it is gone.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Kill kills the process with kill -9, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it fails only if the process is gone
	<-p.exited
}

// Stop stops the process in order, even if it is suspended by a signal. After limit it kills the process and returns an
// error. It waits until the process is gone.
func (p *Process) Stop(limit time.Duration) error {
	p.wake()
	p.Signal(syscall.SIGTERM)
	if p.Gone(context.Background(), limit) {
		return nil
	}
	p.Kill()
	return fmt.Errorf("%s did not stop within %v and was killed", p.name, limit)
}

// Tail returns the last 20 lines of the process's output.
func (p *Process) Tail() string { return p.output.tail() }

// tailLines is how many lines of output are kept.
const tailLines = 20

// output receives the output of a process.
type output struct {
	log  io.Writer
	line func(string)

	mu    sync.Mutex // guards the fields below
	part  []byte     // an incomplete line
	lines []string
}

func (o *output) Write(p []byte) (int, error) {
	for _, line := range o.cut(p) {
		if o.line != nil {
			o.line(line)
		}
	}
	if o.log == nil {
		return len(p), nil
	}
	return o.log.Write(p)
}

// cut appends p and returns the lines that are now complete.
func (o *output) cut(p []byte) (whole []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.part = append(o.part, p...)
	for {
		line, rest, ok := bytes.Cut(o.part, []byte("\n"))
		if !ok {
			break
		}
		whole = append(whole, string(line))
		o.part = bytes.Clone(rest)
	}
	o.lines = append(o.lines, whole...)
	o.lines = o.lines[max(0, len(o.lines)-tailLines):]
	return whole
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}

package demo

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"weir/cmd/internal/machine"
)

const (
	childStart = 30 * time.Second // the longest a start may take
	childStop  = 20 * time.Second // the longest an orderly stop may take
	logTail    = 20               // lines kept of its log
)

// child is a `weir serve` in a process of its own, which dies with this one.
type child struct {
	dir, config string
	nats, http  string // the addresses to use; after start those in use, so that it comes back where it was
	log         *childLog
	fail        context.CancelCauseFunc // told when the process ends by itself
	attributes  func() *syscall.SysProcAttr

	cmd    *exec.Cmd
	told   chan struct{} // closed when the end is wanted
	exited chan struct{} // closed when the process is gone
	up     bool          // it has taken jobs, so that it knows how to stop
}

// start runs the process and returns when it takes jobs.
func (c *child) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, childStart, fmt.Errorf("weir was not ready after %v", childStart))
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the weir binary: %w", err)
	}
	c.log.listen()
	c.up = false
	c.told, c.exited = make(chan struct{}), make(chan struct{})
	c.cmd = exec.Command(self, "serve")
	c.cmd.Env = append(machine.PlainEnv(),
		"WEIR_CONFIG="+c.config, "WEIR_DATA_DIR="+filepath.Join(c.dir, "data"), "WEIR_INSTANCE=demo",
		"WEIR_NATS_LISTEN="+c.nats, "WEIR_HTTP_LISTEN="+c.http)
	c.cmd.Dir = c.dir
	c.cmd.Stderr = c.log
	c.cmd.SysProcAttr = c.attributes()
	if err := c.cmd.Start(); err != nil {
		c.cmd = nil
		return fmt.Errorf("start weir: %w", err)
	}
	go c.wait(c.cmd, c.told, c.exited)
	return c.awaitReady(ctx)
}

// wait notices the end of the process, wanted or not.
func (c *child) wait(cmd *exec.Cmd, told, exited chan struct{}) {
	_ = cmd.Wait() // the process state tells more
	close(exited)
	select {
	case <-told:
	default:
		c.fail(fmt.Errorf("weir ended by itself: %s", cmd.ProcessState))
	}
}

// awaitReady learns the addresses from the log and then asks until a job could be taken.
func (c *child) awaitReady(ctx context.Context) error {
	seen := map[string]string{}
	for seen["nats"] == "" || seen["http"] == "" {
		select {
		case l := <-c.log.listening:
			seen[l.what] = l.addr
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.nats, c.http = seen["nats"], seen["http"]
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !c.ready(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	c.up = true
	return nil
}

func (c *child) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.http+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close() // nothing was written
	return res.StatusCode == http.StatusOK
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// kill ends the process as kill -9 does and returns when it is gone.
func (c *child) kill() {
	close(c.told)
	_ = c.cmd.Process.Kill() // fails only when it is gone already
	<-c.exited
}

// stop ends it in order, or by force when that takes too long.
func (c *child) stop() error {
	if c.cmd == nil {
		return nil
	}
	select {
	case <-c.exited:
		return nil
	default:
	}
	if !c.up {
		c.kill()
		return nil
	}
	close(c.told)
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only when it is gone already
	select {
	case <-c.exited:
		return nil
	case <-time.After(childStop):
		_ = c.cmd.Process.Kill()
		<-c.exited
		return fmt.Errorf("it did not stop within %v and was killed", childStop)
	}
}

// freeOr returns the address if nobody listens there, else the other one.
func freeOr(addr, other string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return other
	}
	if err := l.Close(); err != nil {
		return other
	}
	return addr
}

// listening is a line msg=listening of weir's log.
type listening struct{ what, addr string }

// childLog reads weir's log as it is written: it keeps the last lines and picks out the addresses.
type childLog struct {
	listening chan listening

	mu    sync.Mutex // of all below
	part  []byte     // of a line
	lines []string
}

// listen begins to pick out addresses anew; no process may be writing.
func (l *childLog) listen() {
	l.listening = make(chan listening, 8)
}

func (l *childLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.part = append(l.part, p...)
	for {
		line, rest, whole := bytes.Cut(l.part, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		l.line(string(line))
		l.part = bytes.Clone(rest)
	}
}

func (l *childLog) line(line string) {
	if len(l.lines) == logTail {
		l.lines = l.lines[1:]
	}
	l.lines = append(l.lines, line)
	if !strings.Contains(line, "msg=listening ") && !strings.Contains(line, `msg="listening" `) {
		return
	}
	var at listening
	for field := range strings.FieldsSeq(line) {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "what":
			at.what = value
		case "addr":
			at.addr = value
		}
	}
	select {
	case l.listening <- at:
	default: // more addresses than the demo asks for
	}
}

// tail is the end of the log.
func (l *childLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

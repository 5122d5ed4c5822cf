package serving

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"weir/cmd/internal/child"
)

const (
	startWithin = 30 * time.Second // the longest a start may take
	stopWithin  = 20 * time.Second // the longest an orderly stop may take
	askEvery    = 10 * time.Millisecond
)

// Worker is a `weir serve` in a process of its own. Set its fields before Start. It is not safe for concurrent use.
type Worker struct {
	Path       string                  // the program; "": this program
	Dir        string                  // the working directory
	Env        []string                // weir's settings, except the addresses
	NATS, HTTP string                  // the addresses to listen on; Start sets them to the addresses in use, for a restart
	Fail       context.CancelCauseFunc // called if the process ends before Kill or Stop
	Attributes func() *syscall.SysProcAttr

	process  *child.Process // nil: none was started
	stopping chan struct{}  // closed by Kill and Stop
	up       bool           // the process has accepted jobs since its start, so it handles the signal to stop
}

// Start starts the process and waits until it accepts jobs. It fails after 30 s.
func (w *Worker) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("weir was not ready after %v", startWithin))
	defer cancel()
	path := w.Path
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the weir binary: %w", err)
		}
		path = self
	}
	listen, told := make(chan listening, 8), make(chan struct{})
	process, err := child.Start(child.Options{
		Name: "weir", Path: path, Args: []string{"serve"}, Dir: w.Dir, Attributes: w.Attributes,
		Env: append([]string{"WEIR_NATS_LISTEN=" + w.NATS, "WEIR_HTTP_LISTEN=" + w.HTTP}, w.Env...),
		Line: func(line string) {
			if at, ok := readListening(line); ok {
				select {
				case listen <- at:
				default: // more addresses than weir logs
				}
			}
		},
	})
	w.process, w.stopping, w.up = process, told, false
	if err != nil {
		return err
	}
	go func() {
		<-process.Exited()
		select {
		case <-told:
		default:
			w.Fail(fmt.Errorf("weir ended by itself: %s", process.State()))
		}
	}()
	return w.awaitReady(ctx, listen)
}

// awaitReady waits until the log names weir's addresses, and then until weir accepts jobs. A weir with an external
// server logs no address of NATS.
func (w *Worker) awaitReady(ctx context.Context, listen <-chan listening) error {
	seen := map[string]string{}
	if w.NATS == "" {
		seen["nats"] = "elsewhere"
	}
	for seen["nats"] == "" || seen["http"] == "" {
		select {
		case l := <-listen:
			seen[l.what] = l.addr
		case <-w.process.Exited():
			return fmt.Errorf("weir ended before it was ready: %s", w.process.State())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if w.NATS != "" {
		w.NATS = seen["nats"]
	}
	w.HTTP = seen["http"]
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for !w.ready(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.up = true
	return nil
}

func (w *Worker) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.HTTP+"/readyz", nil)
	if err != nil {
		return false
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close() // only the status is used
	return res.StatusCode == http.StatusOK
}

// PID returns the process's id.
func (w *Worker) PID() int { return w.process.PID() }

// Kill kills the process, as kill -9 does, and waits until it is gone.
func (w *Worker) Kill() {
	close(w.stopping)
	w.process.Kill()
}

// Stop stops the process in order, or kills it after 20 s. It is no error if the process was not started or has ended.
func (w *Worker) Stop() error {
	if w.process == nil {
		return nil
	}
	select {
	case <-w.process.Exited():
		return nil
	default:
	}
	if !w.up {
		w.Kill()
		return nil
	}
	close(w.stopping)
	return w.process.Stop(stopWithin)
}

// Tail returns the end of the log, or "" if no process was started.
func (w *Worker) Tail() string {
	if w.process == nil {
		return ""
	}
	return w.process.Tail()
}

// FreeOr returns addr if nothing listens there, otherwise other.
func FreeOr(addr, other string) string {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return other
	}
	if err := l.Close(); err != nil {
		return other
	}
	return addr
}

// listening has the fields of a line msg=listening in weir's log.
type listening struct{ what, addr string }

// readListening parses a line msg=listening. It returns false for any other line.
func readListening(line string) (at listening, ok bool) {
	if !strings.Contains(line, "msg=listening ") && !strings.Contains(line, `msg="listening" `) {
		return at, false
	}
	for field := range strings.FieldsSeq(line) {
		switch name, value, _ := strings.Cut(field, "="); name {
		case "what":
			at.what = value
		case "addr":
			at.addr = value
		}
	}
	return at, true
}

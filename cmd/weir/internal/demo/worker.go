package demo

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"weir/cmd/internal/child"
)

const (
	childStart = 30 * time.Second // the longest a start may take
	childStop  = 20 * time.Second // the longest an orderly stop may take
)

// worker is a `weir serve` in a process of its own, which dies with this one.
type worker struct {
	dir, config string
	nats, http  string                  // the addresses to use; after start those in use, so that it comes back where it was
	fail        context.CancelCauseFunc // told when the process ends by itself
	attributes  func() *syscall.SysProcAttr

	process *child.Process // nil: none was started
	told    chan struct{}  // closed when the end is wanted
	up      bool           // it has taken jobs, so that it knows how to stop
}

// start runs the process and returns when it takes jobs.
func (w *worker) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, childStart, fmt.Errorf("weir was not ready after %v", childStart))
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the weir binary: %w", err)
	}
	listen, told := make(chan listening, 8), make(chan struct{})
	process, err := child.Start(child.Options{
		Name: "weir", Path: self, Args: []string{"serve"}, Dir: w.dir, Attributes: w.attributes,
		Env: []string{
			"WEIR_CONFIG=" + w.config, "WEIR_DATA_DIR=" + filepath.Join(w.dir, "data"), "WEIR_INSTANCE=demo",
			"WEIR_NATS_LISTEN=" + w.nats, "WEIR_HTTP_LISTEN=" + w.http,
		},
		Line: func(line string) {
			if at, ok := readListening(line); ok {
				select {
				case listen <- at:
				default: // more addresses than the demo asks for
				}
			}
		},
	})
	w.process, w.told, w.up = process, told, false
	if err != nil {
		return err
	}
	go func() {
		<-process.Exited()
		select {
		case <-told:
		default:
			w.fail(fmt.Errorf("weir ended by itself: %s", process.State()))
		}
	}()
	return w.awaitReady(ctx, listen)
}

// awaitReady learns the addresses from the log and then asks until a job could be taken.
func (w *worker) awaitReady(ctx context.Context, listen <-chan listening) error {
	seen := map[string]string{}
	for seen["nats"] == "" || seen["http"] == "" {
		select {
		case l := <-listen:
			seen[l.what] = l.addr
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.nats, w.http = seen["nats"], seen["http"]
	tick := time.NewTicker(lookEvery)
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

func (w *worker) ready(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.http+"/readyz", nil)
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

func (w *worker) pid() int { return w.process.PID() }

// kill ends the process as kill -9 does and returns when it is gone.
func (w *worker) kill() {
	close(w.told)
	w.process.Kill()
}

// stop ends it in order, or by force when that takes too long.
func (w *worker) stop() error {
	if w.process == nil {
		return nil
	}
	select {
	case <-w.process.Exited():
		return nil
	default:
	}
	if !w.up {
		w.kill()
		return nil
	}
	close(w.told)
	return w.process.Stop(childStop)
}

// tail is the end of its log.
func (w *worker) tail() string {
	if w.process == nil {
		return ""
	}
	return w.process.Tail()
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

// readListening reads such a line, and reports whether the line is one.
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

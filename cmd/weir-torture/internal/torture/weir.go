package torture

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
	"weir/dispatcher/recorder"
)

// Bounds of waits for a weir.
const (
	callsWithin = 20 * time.Second       // until the first call, after weir is ready
	takesOver   = 30 * time.Second       // until a second weir is ready
	retryStart  = 100 * time.Millisecond // before a start, after a weir that ended by itself
	mostStarts  = 100                    // in one life, if weir ends by itself each time
)

// weir is the single weir, which is killed and started again. It is safe for concurrent use.
type weir struct {
	programs *programs
	record   *record
	servers  *servers
	http     string // address of its metrics; "": none

	turn sync.Mutex // held by kills and changes that must not overlap

	mu      sync.Mutex
	process *process // the running process; nil between two lives
	boots   int      // how many boots the machine has had, as weir sees it
}

// now returns the running process, or nil between two lives.
func (w *weir) now() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.process
}

// alive returns the running process, or starts one.
func (w *weir) alive(name string, l plan.Life) (*process, error) {
	if p := w.now(); p != nil {
		return p, nil
	}
	return w.start(name, l)
}

// start starts a process under an instance name. It does not wait until the process is ready.
func (w *weir) start(name string, l plan.Life, flags ...string) (*process, error) {
	env := w.env(name, l.Order)
	if l.Memory > 0 {
		env = append(env, fmt.Sprintf("%s=%dMiB", plan.MemoryVariable, l.Memory))
	}
	p, err := w.programs.start(program{name: "weir", args: append([]string{"serve"}, flags...), env: env, mark: "msg=ready"})
	if err != nil {
		return nil, err
	}
	p.memory = l.Memory
	w.mu.Lock()
	w.process = p
	w.mu.Unlock()
	return p, nil
}

// env returns weir's settings for an instance name.
func (w *weir) env(instance string, order fault.Order) []string {
	o := w.programs.o
	env := append(serveEnv(o, instance, w.http, order), "WEIR_STATE_DIR="+w.state())
	w.mu.Lock()
	if w.boots > 0 {
		env = append(env, fault.BootEnv(fmt.Sprintf("%036d", w.boots)))
	}
	w.mu.Unlock()
	if o.Server == plan.External {
		return append(env, "WEIR_NATS_URL="+w.servers.urls[0], "WEIR_REPLICAS=1")
	}
	return append(env, "WEIR_DATA_DIR="+w.servers.dir(), "WEIR_NATS_LISTEN="+w.servers.urls[0][len("nats://"):], "WEIR_NATS_AUTH="+o.Auth)
}

// serveEnv returns the settings of a weir that do not depend on its servers.
func serveEnv(o *plan.Options, instance, http string, order fault.Order) []string {
	order.Bug = o.Bug
	env := []string{
		"WEIR_CONFIG=" + filepath.Join(o.Dir, configFile), "WEIR_INSTANCE=" + instance, "WEIR_HTTP_LISTEN=" + http,
		"WEIR_HTTP_TOKEN=" + httpToken, "WEIR_PARTITIONS=" + strconv.Itoa(o.Partitions()), "WEIR_SHUTDOWN_TIMEOUT=10s", "WEIR_DURABILITY=" + o.Durability,
	}
	if o.Callbacks {
		env = append(env, plan.CallbackAddress+"="+o.Receives, plan.CallbackVariable+"="+plan.CallbackSecret)
	}
	return append(env, order.Env()...)
}

// state returns the directory of weir's flight recorder.
func (w *weir) state() string { return filepath.Join(w.programs.o.Dir, "state") }

// kill kills a process with kill -9.
func (w *weir) kill(p *process, at fault.Point) {
	now := time.Now()
	p.Kill()
	w.killed(judge.Kill{What: "worker", Point: at, At: now}, p)
}

func (w *weir) killed(k judge.Kill, p *process) {
	w.record.killed(k)
	w.forget(p)
}

func (w *weir) endedByItself(p *process, err error) {
	w.forget(p)
	w.record.endedByItself(p, err)
}

func (w *weir) forget(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == p {
		w.process = nil
	}
}

// fell kills weir with kill -9, outside the planned end of a life. Between two lives it does nothing.
func (w *weir) fell() {
	p := w.now()
	if p == nil {
		return // between two lives
	}
	p.felled.Store(true)
	w.kill(p, "")
}

// losePower turns a kill into a loss of power. The machine has another boot from now on, and the file of the flight
// recorder has the state of some earlier moment, as a disk may hold it.
func (w *weir) losePower() {
	w.mu.Lock()
	w.boots++
	w.mu.Unlock()
	n, err := recorder.SetBack(w.state())
	if err != nil {
		w.record.note("power was lost, and the flight recorder could not be set back: %v", err)
	}
	w.record.count(plan.LosePower)
	w.record.talk("power is lost: %d calls are set back", n)
}

// awaitUp waits until a weir is ready, at most takesOver, because weir may be killed again and again.
func (w *weir) awaitUp(ctx context.Context) {
	for limit := time.Now().Add(takesOver); time.Now().Before(limit); {
		if p := w.now(); p != nil && p.isReady() {
			return
		}
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// ready starts weir as often as necessary until one is ready.
func (w *weir) ready(ctx context.Context, name string) (*process, error) {
	for {
		p, err := w.alive(name, plan.Life{})
		if err != nil {
			return nil, err
		}
		if err = p.awaitReady(ctx, startWithin); err == nil {
			return p, nil
		}
		if !errors.Is(err, errGone) {
			return nil, err
		}
		w.endedByItself(p, err)
		if !stream.Sleep(ctx, retryStart) {
			return nil, context.Cause(ctx)
		}
	}
}

// steady starts weir until one is ready. It gives up after mostStarts.
func (w *weir) steady(ctx context.Context) (*process, error) {
	for range mostStarts {
		p, err := w.alive("weir-last", plan.Life{})
		if err != nil {
			return nil, err
		}
		if err = p.awaitReady(ctx, startWithin); err == nil {
			return p, nil
		}
		if !errors.Is(err, errGone) {
			return nil, errors.Join(err, p.Stop(stopWithin))
		}
		w.endedByItself(p, err)
		if !stream.Sleep(ctx, retryStart) {
			return nil, context.Cause(ctx)
		}
	}
	return nil, errors.New("weir does not start any more")
}

// stayUp starts weir without a point to die at, and keeps it running until stop is called.
func (w *weir) stayUp(ctx context.Context) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	p, err := w.steady(ctx)
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-p.Exited():
			case <-ctx.Done():
				return
			}
			w.endedByItself(p, nil)
			next, err := w.steady(ctx)
			if err != nil {
				return // ctx ended; or drain will find that nothing is called
			}
			p = next
		}
	}()
	return func() error { cancel(); <-done; return p.Stop(stopWithin) }, nil
}

// killedItself reports whether a process ended at its chosen point. It returns false if the process is not gone.
func (p *process) killedItself(o fault.Order) bool {
	select {
	case <-p.Exited():
	default:
		return false
	}
	status, ok := p.State().Sys().(syscall.WaitStatus)
	return o.Point != "" && ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

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
	"weir/dispatcher/recorder"
)

// Bounds of what is waited for of a weir.
const (
	callsWithin = 20 * time.Second       // from when weir is ready
	takesOver   = 30 * time.Second       // until a second weir is ready
	retryStart  = 100 * time.Millisecond // after one that ended by itself
	mostStarts  = 100                    // of one life that ends by itself each time
)

// weir is the one that is killed and started again. It is safe for concurrent use.
type weir struct {
	programs *programs
	record   *record
	servers  *servers
	http     string // where it tells its metrics; empty where it does not

	turn sync.Mutex // held by what wants no kills beside its own

	mu      sync.Mutex
	process *process // the one that is killed next; nil between two lives
	boots   int      // of the machine, as it is told
}

// now is the process that runs; nil between two lives.
func (w *weir) now() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.process
}

// alive is the process that runs, or one that is started.
func (w *weir) alive(name string, l life) (*process, error) {
	if p := w.now(); p != nil {
		return p, nil
	}
	return w.start(name, l)
}

// start starts one, under a name; it does not wait until it is ready.
func (w *weir) start(name string, l life, flags ...string) (*process, error) {
	env := w.env(name, l.order)
	if l.memory > 0 {
		env = append(env, fmt.Sprintf("%s=%dMiB", memoryVariable, l.memory))
	}
	p, err := w.programs.start(program{name: "weir", args: append([]string{"serve"}, flags...), env: env, mark: "msg=ready"})
	if err != nil {
		return nil, err
	}
	p.memory = l.memory
	w.mu.Lock()
	w.process = p
	w.mu.Unlock()
	return p, nil
}

// env are its settings, under this name.
func (w *weir) env(instance string, order fault.Order) []string {
	o := w.programs.o
	env := append(o.serveEnv(instance, w.http, order), "WEIR_STATE_DIR="+w.state())
	w.mu.Lock()
	if w.boots > 0 {
		env = append(env, fault.BootEnv(fmt.Sprintf("%036d", w.boots)))
	}
	w.mu.Unlock()
	if o.Server == External {
		return append(env, "WEIR_NATS_URL="+w.servers.urls[0], "WEIR_REPLICAS=1")
	}
	return append(env, "WEIR_DATA_DIR="+w.servers.dir(), "WEIR_NATS_LISTEN="+w.servers.urls[0][len("nats://"):], "WEIR_NATS_AUTH="+o.Auth)
}

// serveEnv are the settings of any weir that do not say where its servers are.
func (o *Options) serveEnv(instance, http string, order fault.Order) []string {
	order.Bug = o.Bug
	return append([]string{
		"WEIR_CONFIG=" + filepath.Join(o.Dir, configFile), "WEIR_INSTANCE=" + instance, "WEIR_HTTP_LISTEN=" + http,
		"WEIR_HTTP_TOKEN=" + httpToken, "WEIR_PARTITIONS=" + strconv.Itoa(o.partitions()), "WEIR_SHUTDOWN_TIMEOUT=10s", "WEIR_DURABILITY=" + o.Durability,
	}, order.Env()...)
}

// state is where it notes how far its calls have come.
func (w *weir) state() string { return filepath.Join(w.programs.o.Dir, "state") }

// kill is kill -9.
func (w *weir) kill(p *process, at fault.Point) {
	now := time.Now()
	p.Kill()
	w.killed(Kill{"worker", at, now}, p)
}

func (w *weir) killed(k Kill, p *process) {
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

// fell is a kill -9 that is none of the lives' own.
func (w *weir) fell() {
	p := w.now()
	if p == nil {
		return // between two lives
	}
	p.felled.Store(true)
	w.kill(p, "")
}

// losePower makes of a kill the end of the machine: it has another boot from now on, and what weir noted in mapped memory is as it may
// stand on a disk then, which is as of any earlier moment.
func (w *weir) losePower() {
	w.mu.Lock()
	w.boots++
	w.mu.Unlock()
	n, err := recorder.SetBack(w.state())
	if err != nil {
		w.record.note("power was lost, and the flight recorder could not be set back: %v", err)
	}
	w.record.count(losePower)
	w.record.talk("power is lost: %d calls are set back", n)
}

// losePower is how losses of power are counted.
const losePower kind = "power lost"

// awaitUp waits until one is up, but not forever: it may be killed again and again.
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

// ready starts weir as often as it takes until it is ready.
func (w *weir) ready(ctx context.Context, name string) (*process, error) {
	for {
		p, err := w.alive(name, life{})
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

// steady starts weir until it is ready, for good.
func (w *weir) steady(ctx context.Context) (*process, error) {
	for range mostStarts {
		p, err := w.alive("weir-last", life{})
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

// stayUp starts weir without an order and keeps it running until stop.
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
				return // ctx ended, or the drain finds that nothing is called
			}
			p = next
		}
	}()
	return func() error { cancel(); <-done; return p.Stop(stopWithin) }, nil
}

// killedItself reports an end at a chosen point. The process must be gone.
func (p *process) killedItself(o fault.Order) bool {
	select {
	case <-p.Exited():
	default:
		return false
	}
	status, ok := p.State().Sys().(syscall.WaitStatus)
	return o.Point != "" && ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/fault"
)

// Bounds of one life.
const (
	patience   = 4 * time.Second // for a chosen point to be reached
	yieldsFor  = 15 * time.Second
	takesOver  = 12 * time.Second
	retryStart = 100 * time.Millisecond
	mostStarts = 100 // of one life that ends by itself each time
)

// torment goes through the plan and returns when weir is up for good.
func (s *stage) torment(ctx, faults context.Context) error {
	events := make(chan error, 1)
	go func() { events <- s.happen(ctx, faults) }()
	err := s.live(ctx, faults)
	if err != nil {
		s.over.Store(int64(len(s.plan.lives))) // the events need not wait for more
	}
	return errors.Join(err, <-events)
}

// live lets weir live and die as often as the plan says, and then starts it for good.
func (s *stage) live(ctx, faults context.Context) error {
	for n, l := range s.plan.lives {
		if faults.Err() != nil {
			break
		}
		if err := s.one(ctx, l, "weir-"+strconv.Itoa(n)); err != nil {
			return err
		}
		if done := n + 1; done%25 == 0 {
			s.talk("%d of %d", done, len(s.plan.lives))
		}
		s.over.Add(1)
	}
	s.over.Store(int64(len(s.plan.lives)))
	return s.stayUp(ctx)
}

// one is one life. A weir that ends by itself, because the server was away for instance, is started again.
func (s *stage) one(ctx context.Context, l life, name string) error {
	for range mostStarts {
		p, err := s.alive(name, l.order)
		if err != nil {
			return err
		}
		if l.early {
			p.gone(ctx, l.delay)
			s.kill(p, "")
			return ctx.Err()
		}
		err = p.awaitReady(ctx, startWithin)
		switch {
		case err == nil:
			if s.end(ctx, p, l, name) {
				return ctx.Err()
			}
		case p.killedItself(l.order):
			s.killed(Kill{"worker", l.order.Point, time.Now()}, p)
			return nil
		case !errors.Is(err, errGone):
			return err
		default:
			s.endedByItself(p, err)
			if !sleep(ctx, retryStart) {
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("weir ended by itself %d times in a row: see %s", mostStarts, s.o.Dir)
}

// end brings a life that is ready to its end; false when it ended by itself in another way.
func (s *stage) end(ctx context.Context, p *process, l life, name string) bool {
	switch {
	case l.takeover:
		return s.takeOver(ctx, p, l, name)
	case l.order.Point != "":
		if !p.gone(ctx, patience) {
			s.mu.Lock()
			s.missed++
			s.mu.Unlock()
			s.kill(p, "")
			return true
		}
		if p.killedItself(l.order) {
			s.killed(Kill{"worker", l.order.Point, time.Now()}, p)
			return true
		}
	default:
		if !p.gone(ctx, l.delay) {
			s.kill(p, "")
			return true
		}
	}
	s.endedByItself(p, nil)
	return false
}

// killedItself reports an end at a chosen point. The process must be gone.
func (p *process) killedItself(o fault.Order) bool {
	select {
	case <-p.exited:
	default:
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return o.Point != "" && ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// alive is the weir that runs, or one that is started.
func (s *stage) alive(name string, order fault.Order) (*process, error) {
	s.mu.Lock()
	p := s.worker
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	return s.startWorker(name, order)
}

func (s *stage) startWorker(name string, order fault.Order) (*process, error) {
	p, err := s.start(program{name: "weir", args: []string{"serve"}, env: s.workerEnv(name, order), mark: "msg=ready"})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.worker = p
	s.mu.Unlock()
	return p, nil
}

// kill is kill -9 of weir.
func (s *stage) kill(p *process, at fault.Point) {
	now := time.Now()
	p.kill()
	s.killed(Kill{"worker", at, now}, p)
}

func (s *stage) killed(k Kill, p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kills = append(s.kills, k)
	if s.worker == p {
		s.worker = nil
	}
}

func (s *stage) endedByItself(p *process, err error) {
	s.mu.Lock()
	s.byThem++
	if s.worker == p {
		s.worker = nil
	}
	s.mu.Unlock()
	if err == nil {
		s.talk("weir ended by itself (%s): %s", p.cmd.ProcessState, lastLine(p.watch.tail()))
	}
}

// takeOver stops a weir, lets another take its place as if the right to call had been lost, and lets the first go on: it
// must find out before it calls anything.
func (s *stage) takeOver(ctx context.Context, p *process, l life, name string) bool {
	if p.gone(ctx, l.delay) {
		s.endedByItself(p, nil)
		return false
	}
	p.signal(syscall.SIGSTOP)
	err := s.dropLeases(ctx)
	if err == nil {
		second, serr := s.startWorker(name+"-second", fault.Order{})
		if err = serr; err == nil {
			if err = second.awaitReady(ctx, takesOver); err != nil {
				second.kill()
				s.mu.Lock()
				s.worker = nil
				s.mu.Unlock()
			}
		}
	}
	if err != nil {
		s.note("a takeover failed: %v", err)
		s.kill(p, "")
		return true
	}
	sleep(ctx, time.Second) // it calls
	p.signal(syscall.SIGCONT)
	yielded := p.gone(ctx, yieldsFor)
	if !yielded {
		p.kill()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[takeover]++
	if !yielded {
		s.counts[clung]++
	}
	return true
}

// The kinds that a takeover is counted as.
const (
	takeover kind = "taken over by a second weir"
	clung    kind = "went on though taken over"
)

// leases is the key-value bucket in which weir keeps who may call.
const leases = "weir_leases"

func (s *stage) dropLeases(ctx context.Context) error {
	nc, err := nats.Connect(s.url)
	if err != nil {
		return fmt.Errorf("drop the leases: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("drop the leases: %w", err)
	}
	kv, err := js.KeyValue(ctx, leases)
	if err != nil {
		return fmt.Errorf("drop the leases: %w", err)
	}
	keys, err := kv.Keys(ctx)
	if err != nil {
		return fmt.Errorf("drop the leases: %w", err)
	}
	for _, key := range keys {
		err = errors.Join(err, kv.Delete(ctx, key))
	}
	return err
}

// stayUp starts weir without an order and keeps it running until the end.
func (s *stage) stayUp(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	p, err := s.steady(ctx)
	if err != nil {
		cancel()
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-p.exited:
			case <-ctx.Done():
				return
			}
			s.endedByItself(p, nil)
			next, err := s.steady(ctx)
			if err != nil {
				return // ctx ended, or the drain finds that nothing is called
			}
			p = next
		}
	}()
	s.onEnd(func() error { cancel(); <-done; return p.stop(stopWithin) })
	return nil
}

// steady starts weir until it is ready.
func (s *stage) steady(ctx context.Context) (*process, error) {
	for range mostStarts {
		p, err := s.alive("weir-last", fault.Order{})
		if err != nil {
			return nil, err
		}
		if err = p.awaitReady(ctx, startWithin); err == nil {
			return p, nil
		}
		if !errors.Is(err, errGone) {
			return nil, errors.Join(err, p.stop(stopWithin))
		}
		s.endedByItself(p, err)
		if !sleep(ctx, retryStart) {
			return nil, context.Cause(ctx)
		}
	}
	return nil, errors.New("weir does not start any more")
}

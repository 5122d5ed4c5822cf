package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"weir/bucket/fault"
	"weir/bucket/stream"
	"weir/dispatcher/recorder"
)

// Bounds of one life.
const (
	patience    = 4 * time.Second  // for a chosen point to be reached
	callsWithin = 20 * time.Second // from when weir is ready
	takesOver   = 30 * time.Second // until a second weir is ready
	leaseGone   = 9 * time.Second  // until a weir that is stopped has lost every right
	clingsFor   = 4 * time.Second  // a weir that was taken over
	retryStart  = 100 * time.Millisecond
	mostStarts  = 100 // of one life that ends by itself each time
)

// torment goes through the plan and returns when weir is up for good.
func (s *stage) torment(ctx, faults context.Context) error {
	if s.fleet != nil {
		return s.fleet.torment(ctx, faults, s.plan.strikes)
	}
	eventful, stop := context.WithCancel(ctx)
	defer stop()
	events := make(chan error, 2)
	go func() { events <- mishaps{s}.happen(eventful, faults) }()
	go func() { events <- operator{s}.reconfigure(eventful, faults) }()
	if err := s.live(ctx, faults); err != nil {
		stop()
		return errors.Join(err, <-events, <-events)
	}
	if err := errors.Join(<-events, <-events); err != nil {
		return err
	}
	return operator{s}.restore(ctx)
}

// live lets weir live and die as often as the plan says, and then starts it for good.
func (s *stage) live(ctx, faults context.Context) error {
	for n, l := range s.plan.lives {
		if faults.Err() != nil {
			break
		}
		name := "weir-" + strconv.Itoa(n)
		end := func() error { return s.one(ctx, l, name) }
		if l.idle > 0 {
			end = func() error { return s.killIdle(ctx, l, name) }
		}
		if err := end(); err != nil {
			return err
		}
		if l.power {
			s.losePower()
		}
		if done := n + 1; done%25 == 0 {
			s.talk("%d of %d", done, len(s.plan.lives))
		}
		s.over.Add(1)
	}
	s.over.Store(int64(len(s.plan.lives)))
	return s.stayUp(ctx)
}

// losePower makes of a kill the end of the machine: it has another boot from now on, and what weir noted in mapped memory is as it may
// stand on a disk then, which is as of any earlier moment.
func (s *stage) losePower() {
	s.mu.Lock()
	s.boots++
	s.mu.Unlock()
	n, err := recorder.SetBack(s.state())
	if err != nil {
		s.note("power was lost, and the flight recorder could not be set back: %v", err)
	}
	s.count(losePower)
	s.talk("power is lost: %d calls are set back", n)
}

// losePower is how losses of power are counted.
const losePower kind = "power lost"

// one is one life. A weir that ends by itself, because the server was away for instance, is started again.
func (s *stage) one(ctx context.Context, l life, name string) error {
	for range mostStarts {
		p, err := s.alive(name, l)
		if err != nil {
			return err
		}
		if l.early {
			p.Gone(ctx, l.delay)
			s.kill(p, "")
			return ctx.Err()
		}
		err = p.awaitReady(ctx, startWithin)
		switch {
		case err == nil:
			if l.calls {
				s.awaitCall(ctx, p)
			}
			switch {
			case l.restore:
				return errors.Join(s.endRestored(ctx, p, l, name), ctx.Err())
			case l.flip != nil:
				return errors.Join(s.endFlipped(ctx, p, l), ctx.Err())
			}
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
			if !stream.Sleep(ctx, retryStart) {
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("weir ended by itself %d times in a row: see %s", mostStarts, s.o.Dir)
}

// awaitCall waits until a call reaches the api, the process is gone, or callsWithin has passed. A weir that follows one that
// was killed may not call before that one's right to is over.
func (s *stage) awaitCall(ctx context.Context, p *process) {
	before := s.written()
	for limit := time.Now().Add(callsWithin); s.written() == before && time.Now().Before(limit); {
		if p.Gone(ctx, 20*time.Millisecond) || ctx.Err() != nil {
			return
		}
	}
}

// written is the length of the api's ledger, 0 where it cannot be read.
func (s *stage) written() int64 {
	info, err := os.Stat(s.ledger)
	if err != nil {
		return 0
	}
	return info.Size()
}

// end brings a life that is ready to its end; false when it ended by itself in another way.
func (s *stage) end(ctx context.Context, p *process, l life, name string) bool {
	switch {
	case l.takeover:
		return s.takeOver(ctx, p, l, name)
	case l.memory > 0:
		return s.endCrowded(ctx, p, l)
	case l.order.Point != "":
		if !p.Gone(ctx, patience) {
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
		if !p.Gone(ctx, l.delay) {
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
	case <-p.Exited():
	default:
		return false
	}
	status, ok := p.State().Sys().(syscall.WaitStatus)
	return o.Point != "" && ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// alive is the weir that runs, or one that is started.
func (s *stage) alive(name string, l life) (*process, error) {
	s.mu.Lock()
	p := s.worker
	s.mu.Unlock()
	if p != nil {
		return p, nil
	}
	return s.startWorker(name, l)
}

func (s *stage) startWorker(name string, l life, flags ...string) (*process, error) {
	env := s.workerEnv(name, l.order)
	if l.memory > 0 {
		env = append(env, fmt.Sprintf("%s=%dMiB", memoryVariable, l.memory))
	}
	p, err := s.start(program{name: "weir", args: append([]string{"serve"}, flags...), env: env, mark: "msg=ready"})
	if err != nil {
		return nil, err
	}
	p.memory = l.memory
	s.mu.Lock()
	s.worker = p
	s.mu.Unlock()
	return p, nil
}

// kill is kill -9 of weir.
func (s *stage) kill(p *process, at fault.Point) {
	now := time.Now()
	p.Kill()
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
	felled := p.felled.Load()
	if !felled {
		s.byThem++
	}
	if s.worker == p {
		s.worker = nil
	}
	s.mu.Unlock()
	if err == nil && !felled {
		s.talk("weir ended by itself (%s): %s", p.State(), lastLine(p.Tail()))
	}
}

// takeOver stops a weir until its right to call is gone and another has taken its place, and lets it go on then: it must
// find out before it calls anything, or says anything of what it had called.
func (s *stage) takeOver(ctx context.Context, p *process, l life, name string) bool {
	if p.Gone(ctx, l.delay) {
		s.endedByItself(p, nil)
		return false
	}
	p.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	second, err := s.startWorker(name+"-second", life{})
	if err == nil {
		if err = second.awaitReady(ctx, takesOver); err != nil {
			second.Kill()
			s.forget(second)
		}
	}
	if err != nil {
		s.note("a takeover failed: %v", err)
		s.kill(p, "")
		return true
	}
	stream.Sleep(ctx, max(time.Until(stopped.Add(leaseGone)), time.Second)) // the second one calls
	p.Signal(syscall.SIGCONT)
	if !p.Gone(ctx, clingsFor) {
		p.Kill()
	}
	s.count(takeover)
	return true
}

func (s *stage) forget(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.worker == p {
		s.worker = nil
	}
}

// takeover is how takeovers are counted.
const takeover kind = "taken over by a second weir"

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
			case <-p.Exited():
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
	s.onEnd(func() error { cancel(); <-done; return p.Stop(stopWithin) })
	return nil
}

// steady starts weir until it is ready.
func (s *stage) steady(ctx context.Context) (*process, error) {
	for range mostStarts {
		p, err := s.alive("weir-last", life{})
		if err != nil {
			return nil, err
		}
		if err = p.awaitReady(ctx, startWithin); err == nil {
			return p, nil
		}
		if !errors.Is(err, errGone) {
			return nil, errors.Join(err, p.Stop(stopWithin))
		}
		s.endedByItself(p, err)
		if !stream.Sleep(ctx, retryStart) {
			return nil, context.Cause(ctx)
		}
	}
	return nil, errors.New("weir does not start any more")
}

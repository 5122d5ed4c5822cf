package torture

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
)

// Bounds of one life.
const (
	patience  = 4 * time.Second // until a chosen point is reached
	leaseGone = 9 * time.Second // until a stopped weir has lost every right
	clingsFor = 4 * time.Second // until a weir that was replaced ends
)

// lives runs the planned lives of the single weir, each to its end.
type lives struct {
	planned   []plan.Life
	weir      *weir
	api       *paidAPI
	servers   *servers
	producing *producers
	record    *record

	over atomic.Int64 // lives that are over
}

// live starts and ends weir as often as planned.
func (s *lives) live(ctx, faults context.Context) error {
	for n, l := range s.planned {
		if faults.Err() != nil {
			break
		}
		name := "weir-" + strconv.Itoa(n)
		end := func() error { return s.one(ctx, l, name) }
		if l.Idle > 0 {
			end = func() error { return s.killIdle(ctx, l, name) }
		}
		if err := end(); err != nil {
			return err
		}
		if l.Power {
			s.weir.losePower()
		}
		if done := n + 1; done%25 == 0 {
			s.record.talk("%d of %d", done, len(s.planned))
		}
		s.over.Add(1)
	}
	s.over.Store(int64(len(s.planned)))
	return nil
}

// awaitPart waits until the fraction part of the lives is over. It returns false if ctx ends first.
func (s *lives) awaitPart(ctx context.Context, part float64) bool {
	for float64(s.over.Load()) < part*float64(len(s.planned)) {
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return true
}

// one executes one life. If weir ends by itself, for example because the server was down, it starts weir again.
func (s *lives) one(ctx context.Context, l plan.Life, name string) error {
	for range mostStarts {
		p, err := s.weir.alive(name, l)
		if err != nil {
			return err
		}
		if l.Early {
			p.Gone(ctx, l.Delay)
			s.weir.kill(p, "")
			return ctx.Err()
		}
		err = p.awaitReady(ctx, startWithin)
		switch {
		case err == nil:
			if l.Calls {
				s.api.awaitCall(ctx, p)
			}
			switch {
			case l.Restore:
				return errors.Join(s.endRestored(ctx, p, l, name), ctx.Err())
			case l.Flip != nil:
				return errors.Join(s.endFlipped(ctx, p, l), ctx.Err())
			}
			if s.end(ctx, p, l, name) {
				return ctx.Err()
			}
		case p.killedItself(l.Order):
			s.weir.killed(judge.Kill{What: "worker", Point: l.Order.Point, At: time.Now()}, p)
			return nil
		case !errors.Is(err, errGone):
			return err
		default:
			s.weir.endedByItself(p, err)
			if !stream.Sleep(ctx, retryStart) {
				return ctx.Err()
			}
		}
	}
	return fmt.Errorf("weir ended by itself %d times in a row: see %s", mostStarts, s.servers.o.Dir)
}

// end ends a life of a weir that is ready. It returns false if weir ended by itself before that.
func (s *lives) end(ctx context.Context, p *process, l plan.Life, name string) bool {
	switch {
	case l.Takeover:
		return s.takeOver(ctx, p, l, name)
	case l.Memory > 0:
		return s.endCrowded(ctx, p, l)
	case l.Order.Point != "":
		if !p.Gone(ctx, patience) {
			s.record.miss()
			s.weir.kill(p, "")
			return true
		}
		if p.killedItself(l.Order) {
			s.weir.killed(judge.Kill{What: "worker", Point: l.Order.Point, At: time.Now()}, p)
			return true
		}
	default:
		if !p.Gone(ctx, l.Delay) {
			s.weir.kill(p, "")
			return true
		}
	}
	s.weir.endedByItself(p, nil)
	return false
}

// takeOver suspends a weir until its right to call has expired and another weir has replaced it, and then continues it.
// The first weir must notice the replacement before it makes a call or reports anything about earlier calls.
func (s *lives) takeOver(ctx context.Context, p *process, l plan.Life, name string) bool {
	if p.Gone(ctx, l.Delay) {
		s.weir.endedByItself(p, nil)
		return false
	}
	p.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	second, err := s.weir.start(name+"-second", plan.Life{})
	if err == nil {
		if err = second.awaitReady(ctx, takesOver); err != nil {
			second.Kill()
			s.weir.forget(second)
		}
	}
	if err != nil {
		s.record.note("a takeover failed: %v", err)
		s.weir.kill(p, "")
		return true
	}
	stream.Sleep(ctx, max(time.Until(stopped.Add(leaseGone)), time.Second)) // the second one makes calls
	p.Signal(syscall.SIGCONT)
	if !p.Gone(ctx, clingsFor) {
		p.Kill()
	}
	s.record.count(plan.Takeover)
	return true
}

package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"weir/ingest"

	"golang.org/x/sync/errgroup"
)

// lifetime holds what a worker must stop: its parts, its cleanups, and three contexts that end one after the other.
// soft ends when no job may be accepted and no new call may start. hard ends when running calls must end. base ends
// when the ends of all calls are stored.
type lifetime struct {
	log     *slog.Logger
	timeout time.Duration // time between the ends of soft and hard

	soft, hard, base             context.Context
	stopSoft, stopHard, stopBase context.CancelCauseFunc
	cleanups                     []cleanup
	intake                       *ingest.Service // stops before all other parts; nil: there is none
	lower                        errgroup.Group  // parts that dispatch needs to store its results, such as queues and letters
	upper                        *errgroup.Group // dispatch; nil: there is none
	done                         chan struct{}
	failed                       chan error // the first error of a lower part
	err                          error
	broken                       atomic.Pointer[error] // why a part has ended by itself; nil: none has
}

func newLifetime(ctx context.Context, timeout time.Duration, log *slog.Logger) *lifetime {
	l := &lifetime{log: log, timeout: timeout, done: make(chan struct{}), failed: make(chan error, 1)}
	l.base, l.stopBase = context.WithCancelCause(context.WithoutCancel(ctx))
	l.hard, l.stopHard = context.WithCancelCause(l.base)
	l.soft, l.stopSoft = context.WithCancelCause(l.hard)
	l.onStop("contexts", func() error { l.stopBase(errStopped); return nil })
	return l
}

// cleanup is one step that undoes a start. A failed Start and a stopping worker run the cleanups in reverse order.
type cleanup struct {
	name string
	do   func() error
}

var (
	errStopped = errors.New("weir is stopping")
	errTimeout = errors.New("the shutdown timeout has passed")
)

// watch ends the worker when one of its parts ends, because nothing restarts a single part.
func (l *lifetime) watch() {
	ended := make(chan error, 1)
	if l.upper != nil {
		go func() { ended <- l.upper.Wait() }()
	}
	select {
	case l.err = <-l.failed:
	case l.err = <-ended:
		if l.err == nil && l.soft.Err() == nil {
			l.err = errors.New("a part of weir ended by itself")
		}
	case <-l.soft.Done():
	}
	if l.err != nil {
		l.broken.CompareAndSwap(nil, &l.err)
		l.log.Error("weir stops", "err", l.err)
	}
	l.shutDown()
	close(l.done)
}

// lowerGo runs a part that must work for as long as the worker does. If the part fails, the worker ends.
func (l *lifetime) lowerGo(part func() error) {
	l.lower.Go(func() error {
		err := part()
		if err != nil && l.base.Err() == nil {
			l.broken.CompareAndSwap(nil, &err)
			select {
			case l.failed <- err:
			default: // another failure was first
			}
		}
		return err
	})
}

// shutDown stops the intake, then runs the cleanups in reverse order. It ends hard, and with it the running calls,
// after the shutdown timeout.
func (l *lifetime) shutDown() {
	l.stopSoft(errStopped)
	limit, cancel := context.WithTimeout(context.Background(), l.timeout)
	defer cancel()
	if l.intake != nil {
		if err := l.intake.Stop(limit); err != nil {
			l.log.Warn("stopping", "err", err)
		}
	}
	stopHard := context.AfterFunc(limit, func() { l.stopHard(errTimeout) })
	defer stopHard()
	if err := l.cleanUp(); err != nil && l.err == nil {
		l.err = err
	}
}

// undo stops what a failed start has started. Running calls may continue until the shutdown timeout has passed.
func (l *lifetime) undo() error {
	timer := time.AfterFunc(l.timeout, func() { l.stopHard(errTimeout) })
	defer timer.Stop()
	return l.cleanUp()
}

// wait waits until dispatch has ended. Then it ends the parts that dispatch stores with, and waits for them.
func (l *lifetime) wait() error {
	l.stopSoft(errStopped)
	var err error
	if l.upper != nil {
		err = l.upper.Wait()
	}
	l.stopBase(errStopped)
	return errors.Join(err, l.lower.Wait())
}

// Stop begins the shutdown and does not block. From then on no job is accepted; running calls may end.
func (l *lifetime) Stop() { l.stopSoft(errStopped) }

// Wait blocks until the worker has stopped. It returns why a part failed, nil after an ordinary stop.
func (l *lifetime) Wait() error {
	<-l.done
	return l.err
}

// Done returns a channel that is closed when the worker has stopped.
func (l *lifetime) Done() <-chan struct{} { return l.done }

func (l *lifetime) onStop(name string, do func() error) {
	l.cleanups = append(l.cleanups, cleanup{name, do})
}

func (l *lifetime) cleanUp() error {
	var errs []error
	for i := len(l.cleanups) - 1; i >= 0; i-- {
		if err := l.cleanups[i].do(); err != nil && !errors.Is(err, errStopped) {
			errs = append(errs, fmt.Errorf("stop %s: %w", l.cleanups[i].name, err))
		}
	}
	l.cleanups = nil
	return errors.Join(errs...)
}

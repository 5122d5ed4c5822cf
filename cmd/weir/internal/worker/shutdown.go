package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// cleanup is undone in reverse order, when Start fails and when the worker stops.
type cleanup struct {
	name string
	do   func() error
}

var errStopped = errors.New("weir is stopping")

// watch ends the worker when one of its parts ends: half a worker is worse than none, since nobody restarts it.
func (w *Worker) watch() {
	ended := make(chan error, 1)
	if w.dispatch != nil {
		go func() { ended <- w.upper.Wait() }()
	}
	select {
	case w.err = <-w.failed:
	case w.err = <-ended:
		if w.err == nil && w.soft.Err() == nil {
			w.err = errors.New("a part of weir ended by itself")
		}
	case <-w.soft.Done():
	}
	if w.err != nil {
		w.log.Error("weir stops", "err", w.err)
	}
	w.shutDown()
	close(w.done)
}

// lowerGo runs a part that must not end before the worker does. Its failure ends the worker.
func (w *Worker) lowerGo(part func() error) {
	w.lower.Go(func() error {
		err := part()
		if err != nil && w.base.Err() == nil {
			select {
			case w.failed <- err:
			default: // another was first
			}
		}
		return err
	})
}

// shutDown takes the parts down in the order in which no promise breaks.
func (w *Worker) shutDown() {
	w.stopSoft(errStopped)
	limit, cancel := context.WithTimeout(context.Background(), w.settings.ShutdownTimeout)
	defer cancel()
	if w.intake != nil {
		if err := w.intake.Stop(limit); err != nil {
			w.log.Warn("stopping", "err", err)
		}
	}
	stopHard := context.AfterFunc(limit, func() { w.stopHard(errors.New("the shutdown timeout has passed")) })
	defer stopHard()
	if err := w.cleanUp(); err != nil && w.err == nil {
		w.err = err
	}
}

// undo takes down what a start that failed has started. Calls that run already get the shutdown timeout, as ever.
func (w *Worker) undo() error {
	if w.stopHard != nil {
		timer := time.AfterFunc(w.settings.ShutdownTimeout, func() { w.stopHard(errors.New("the shutdown timeout has passed")) })
		defer timer.Stop()
	}
	return w.cleanUp()
}

// wait ends dispatch, then what it stores with.
func (w *Worker) wait() error {
	w.stopSoft(errStopped)
	err := w.upper.Wait()
	w.stopBase(errStopped)
	return errors.Join(err, w.lower.Wait())
}

// Stop begins the shutdown: no more jobs are taken, running calls may end.
func (w *Worker) Stop() { w.stopSoft(errStopped) }

// Wait blocks until the worker has stopped and returns why, nil after Stop.
func (w *Worker) Wait() error {
	<-w.done
	return w.err
}

// Done is closed when the worker has stopped.
func (w *Worker) Done() <-chan struct{} { return w.done }

func (w *Worker) onStop(name string, do func() error) {
	w.cleanups = append(w.cleanups, cleanup{name, do})
}

func (w *Worker) cleanUp() error {
	var errs []error
	for i := len(w.cleanups) - 1; i >= 0; i-- {
		if err := w.cleanups[i].do(); err != nil && !errors.Is(err, errStopped) {
			errs = append(errs, fmt.Errorf("stop %s: %w", w.cleanups[i].name, err))
		}
	}
	w.cleanups = nil
	return errors.Join(errs...)
}

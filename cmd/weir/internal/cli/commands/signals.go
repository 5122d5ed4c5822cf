package commands

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"weir/cmd/weir/internal/serve/worker"
)

// signals handles the operating system's signals to a serving weir. A first SIGTERM or SIGINT stops weir in order, a
// second one at once. SIGHUP makes weir read its configuration file again. SIGPIPE is ignored. Otherwise Go would end
// the process when it writes to a closed pipe on stdout or stderr: if the reader of a log ended, running calls would
// end too.
type signals struct {
	log    *slog.Logger
	to     supervisor
	cancel func() // ends a start that is under way
	taken  chan os.Signal
	pipes  chan os.Signal // never read

	mu       sync.Mutex     // guards the fields below
	worker   *worker.Worker // nil until the start is complete
	stopping bool
	reload   bool // a SIGHUP came during the start
}

// listen handles the signals from now on. quit restores the default handling of these signals.
func (s *signals) listen() (quit func()) {
	s.taken, s.pipes = make(chan os.Signal, 4), make(chan os.Signal, 1)
	signal.Notify(s.taken, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	signal.Notify(s.pipes, syscall.SIGPIPE)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-s.taken:
				s.take(sig)
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		signal.Stop(s.taken)
		signal.Stop(s.pipes)
	}
}

func (s *signals) take(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case sig == syscall.SIGHUP && s.stopping:
	case sig == syscall.SIGHUP && s.worker == nil:
		s.log.Info("SIGHUP: weir reads the configuration file again when it is ready")
		s.reload = true
	case sig == syscall.SIGHUP:
		s.to.reloading()
		s.worker.Reload(s.to.ready)
	case s.stopping:
		os.Exit(1)
	default:
		s.stopping = true
		s.to.stopping()
		s.log.Info("stopping: waiting for running calls to end; a second signal exits at once")
		if s.worker == nil {
			s.cancel()
		} else {
			s.worker.Stop()
		}
	}
}

// ready passes signals to the worker from now on. It also passes on the signals that came during the start.
func (s *signals) ready(w *worker.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worker = w
	if !s.stopping {
		s.to.ready()
	}
	switch {
	case s.stopping:
		w.Stop() // the signal came during the last steps of the start
	case s.reload:
		s.to.reloading()
		w.Reload(s.to.ready)
	}
}

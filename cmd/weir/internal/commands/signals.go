package commands

import (
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"weir/cmd/weir/internal/worker"
)

// signals are what the operating system tells a serving weir. SIGTERM and SIGINT stop it in order, a second one at once. SIGHUP
// has it read its file anew. SIGPIPE is taken and passed over: Go ends a process that writes to a closed pipe on stdout or
// stderr, and whoever reads the log must not end the calls that run.
type signals struct {
	log    *slog.Logger
	to     supervisor
	cancel func() // ends a start
	taken  chan os.Signal
	pipes  chan os.Signal // nobody reads it

	mu       sync.Mutex     // of all below
	worker   *worker.Worker // nil while it starts
	stopping bool
	reload   bool // a SIGHUP came during the start
}

// listen takes the signals from now on. quit gives them back.
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
		s.log.Info("SIGHUP: the configuration file is read once more when weir is ready")
		s.reload = true
	case sig == syscall.SIGHUP:
		s.to.reloading()
		s.worker.Reload(s.to.ready)
	case s.stopping:
		os.Exit(1)
	default:
		s.stopping = true
		s.to.stopping()
		s.log.Info("stopping: running calls may end; a second signal exits at once")
		if s.worker == nil {
			s.cancel()
		} else {
			s.worker.Stop()
		}
	}
}

// ready lets the signals reach the worker, also those that came while it started.
func (s *signals) ready(w *worker.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worker = w
	if !s.stopping {
		s.to.ready()
	}
	switch {
	case s.stopping:
		w.Stop() // the signal came while the last steps of the start were done
	case s.reload:
		s.to.reloading()
		w.Reload(s.to.ready)
	}
}

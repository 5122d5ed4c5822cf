package torture

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/bucket/stream"
)

// server is the nats-server beside the one weir. It is killed, stopped and started again where it was.
type server struct {
	programs *programs
	record   *record
	addr     string
	dir      string
	disk     *disk // nil where it is never full

	mu      sync.Mutex
	process *process
}

// start starts it, and waits until it listens.
func (s *server) start(ctx context.Context) error {
	args := []string{"nats-server", "--listen", s.addr, "--dir", s.dir, "--durability", s.programs.o.Durability}
	if s.disk != nil {
		args = append(args, "--max-store", strconv.Itoa(1<<40)) // so that the disk is full before the server says so
	}
	p, err := s.programs.start(program{name: "nats-server", args: args, mark: "listening nats"})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	return p.awaitReady(ctx, startWithin)
}

// now is the process that runs; nil: none was started.
func (s *server) now() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

func (s *server) stop() error {
	if p := s.now(); p != nil {
		return p.Stop(stopWithin)
	}
	return nil
}

// replace kills it and starts it after a while.
func (s *server) replace(ctx context.Context, after time.Duration) error {
	now := time.Now()
	s.now().Kill()
	s.record.killed(Kill{What: "server", At: now})
	stream.Sleep(ctx, after)
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("after a kill: %w", err)
	}
	return nil
}

// fill takes its disk away for a while. JetStream writes nothing more after that until it is started again.
func (s *server) fill(ctx context.Context, last time.Duration) error {
	if err := s.disk.fill(); err != nil {
		return err
	}
	stream.Sleep(ctx, last)
	if err := s.disk.free(); err != nil {
		return fmt.Errorf("free the disk: %w", err)
	}
	return s.replace(ctx, 0)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

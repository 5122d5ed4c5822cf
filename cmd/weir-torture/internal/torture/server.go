package torture

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/disk"
	"weir/cmd/weir-torture/internal/judge"
)

// server is the nats-server beside the single weir. It is killed, suspended, and started again with its old store and
// address.
type server struct {
	programs *programs
	record   *record
	addr     string
	dir      string
	disk     *disk.Disk // nil: the disk is never filled

	mu      sync.Mutex
	process *process
}

// start starts the server and waits until it listens.
func (s *server) start(ctx context.Context) error {
	args := []string{"nats-server", "--listen", s.addr, "--dir", s.dir, "--durability", s.programs.o.Durability}
	if s.disk != nil {
		args = append(args, "--max-store", strconv.Itoa(1<<40)) // so that the disk is full before the store is
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

// now returns the running process, or nil if none was started.
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

// replace kills the server and starts it again after a while.
func (s *server) replace(ctx context.Context, after time.Duration) error {
	now := time.Now()
	s.now().Kill()
	s.record.killed(judge.Kill{What: "server", At: now})
	stream.Sleep(ctx, after)
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("after a kill: %w", err)
	}
	return nil
}

// fill fills the disk for a while. JetStream then writes nothing until the server is restarted, so fill restarts it.
func (s *server) fill(ctx context.Context, last time.Duration) error {
	if err := s.disk.Fill(); err != nil {
		return err
	}
	stream.Sleep(ctx, last)
	if err := s.disk.Free(); err != nil {
		return fmt.Errorf("free the disk: %w", err)
	}
	return s.replace(ctx, 0)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

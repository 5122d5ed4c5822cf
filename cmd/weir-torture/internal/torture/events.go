package torture

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"weir/bucket/stream"
)

// mishaps are what happens to a stage besides kills of weir: to its server, its network, its disk and its credentials.
type mishaps struct{ *stage }

// happen does the plan's events, each when its part of the lives is over.
func (s mishaps) happen(ctx, faults context.Context) error {
	for _, e := range s.plan.events {
		if !s.awaitLives(ctx, e.after) || !stream.Sleep(faults, e.pause) {
			return nil // no more: the time is over, or the lives have failed
		}
		if err := s.do(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// awaitLives waits until so much of the lives is over.
func (s mishaps) awaitLives(ctx context.Context, part float64) bool {
	for float64(s.over.Load()) < part*float64(len(s.plan.lives)) {
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			return false
		}
	}
	return true
}

func (s mishaps) do(ctx context.Context, e event) error {
	s.mu.Lock()
	worker, server := s.worker, s.server
	s.mu.Unlock()
	switch e.kind {
	case killServer:
		return s.replaceServer(ctx, server, e.last)
	case stopWorker:
		if worker == nil {
			return nil // between two lives: not counted
		}
		pause(ctx, worker, e.last)
	case stopServer:
		pause(ctx, server, e.last)
	case cutNetwork:
		if err := s.network.spoil(ctx, e.toxic, e.last); err != nil {
			return err
		}
	case fillDisk:
		if s.disk == nil {
			return nil // said already
		}
		if err := s.fill(ctx, server, e.last); err != nil {
			return err
		}
	case revoke:
		if err := s.revoke(ctx, e.last); err != nil {
			return err
		}
	default:
		panic("torture: unknown event " + e.kind) // the plan has a bug
	}
	s.count(e.kind)
	return nil
}

// replaceServer kills the server and starts it after a while.
func (s *stage) replaceServer(ctx context.Context, server *process, after time.Duration) error {
	now := time.Now()
	server.Kill()
	s.mu.Lock()
	s.kills = append(s.kills, Kill{What: "server", At: now})
	s.mu.Unlock()
	stream.Sleep(ctx, after)
	if err := s.startServer(ctx); err != nil {
		return fmt.Errorf("after a kill: %w", err)
	}
	return nil
}

// fill takes the server's disk away for a while. JetStream writes nothing more after that until it is started again.
func (s mishaps) fill(ctx context.Context, server *process, last time.Duration) error {
	s.awaitWorker(ctx) // else nobody writes
	if err := s.disk.fill(); err != nil {
		return err
	}
	stream.Sleep(ctx, last)
	if err := s.disk.free(); err != nil {
		return fmt.Errorf("free the disk: %w", err)
	}
	return s.replaceServer(ctx, server, 0)
}

// awaitWorker waits until a weir is up, but not forever: it may be killed again and again.
func (s *stage) awaitWorker(ctx context.Context) {
	for limit := time.Now().Add(takesOver); time.Now().Before(limit); {
		s.mu.Lock()
		worker := s.worker
		s.mu.Unlock()
		if worker != nil {
			select {
			case <-worker.ready:
				return
			default:
			}
		}
		if !stream.Sleep(ctx, 20*time.Millisecond) {
			return
		}
	}
}

// pause stops a process for a while.
func pause(ctx context.Context, p *process, last time.Duration) {
	p.Signal(syscall.SIGSTOP)
	stream.Sleep(ctx, last)
	p.Signal(syscall.SIGCONT)
}

func (s *stage) count(k kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[k]++
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// revoked is the file that has the api answer 401 as long as it is there.
func (s *stage) revoked() string { return filepath.Join(s.o.Dir, "revoked") }

// revoke takes weir's credentials away for a while.
func (s mishaps) revoke(ctx context.Context, last time.Duration) error {
	if err := os.WriteFile(s.revoked(), nil, 0o600); err != nil {
		return fmt.Errorf("revoke credentials: %w", err)
	}
	stream.Sleep(ctx, last)
	if err := os.Remove(s.revoked()); err != nil {
		return fmt.Errorf("give credentials back: %w", err)
	}
	return nil
}

package torture

import (
	"context"
	"time"

	"weir/bucket/stream"
	"weir/cmd/weir-torture/internal/judge"
	"weir/cmd/weir-torture/internal/plan"
)

// Bounds of these kills.
const (
	idleAfter  = time.Second      // calls go on for so long before the first kill
	idleWithin = 90 * time.Second // until nothing is queued
)

// killIdle pauses the producers, waits until nothing is queued, and kills weir several times.
func (s *lives) killIdle(ctx context.Context, l plan.Life, name string) error {
	for !s.weir.turn.TryLock() { // a configuration change may hold turn until weir is up again
		if _, err := s.weir.ready(ctx, name); err != nil {
			return err
		}
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	defer s.weir.turn.Unlock()
	p, err := s.weir.ready(ctx, name)
	if err != nil {
		return err
	}
	s.api.awaitCall(ctx, p)
	stream.Sleep(ctx, idleAfter)
	s.producing.quiet.Store(true)
	defer s.producing.quiet.Store(false)
	if err := s.awaitIdle(ctx, name); err != nil {
		return err
	}
	for range l.Idle {
		p, err := s.weir.ready(ctx, name)
		if err != nil {
			return err
		}
		if p.Gone(ctx, l.Delay) {
			s.weir.endedByItself(p, nil)
			continue
		}
		now := time.Now()
		p.Kill()
		s.weir.killed(judge.Kill{What: judge.Idle, At: now}, p)
		s.record.count(plan.KillIdle)
	}
	return ctx.Err()
}

// awaitIdle waits until no producer waits for an answer and nothing is queued. After idleWithin it gives up with a
// note.
func (s *lives) awaitIdle(ctx context.Context, name string) error {
	nc, js, err := s.servers.connected()
	if err != nil {
		return err
	}
	defer nc.Close()
	for limit := time.Now().Add(idleWithin); time.Now().Before(limit); {
		if _, err := s.weir.ready(ctx, name); err != nil {
			return err
		}
		if waiting, err := queued(ctx, js); err == nil && waiting == 0 && s.producing.busy.Load() == 0 {
			return nil
		}
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	s.record.note("killed while something was queued still, after %v without new jobs", idleWithin)
	return nil
}

package torture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// What weir is killed for while nothing is queued: what it counts must not run away with each start.
const (
	idleInARow = 10
	idleAfter  = time.Second      // of calls
	idleWithin = 90 * time.Second // until nothing is queued

)

const killIdle kind = "kill -9 while nothing is queued"

// idle is what such a kill is of.
const idle = "idle"

// killIdle has the producers wait, and kills weir again and again as soon as nothing is queued.
func (s *stage) killIdle(ctx context.Context, l life, name string) error {
	for !s.turn.TryLock() { // a change of the configuration may wait for weir to be up again
		if _, err := s.readyWorker(ctx, name); err != nil {
			return err
		}
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	defer s.turn.Unlock()
	p, err := s.readyWorker(ctx, name)
	if err != nil {
		return err
	}
	s.awaitCall(ctx, p)
	stream.Sleep(ctx, idleAfter)
	s.producing.quiet.Store(true)
	defer s.producing.quiet.Store(false)
	if err := s.awaitIdle(ctx, name); err != nil {
		return err
	}
	for range l.idle {
		p, err := s.readyWorker(ctx, name)
		if err != nil {
			return err
		}
		if p.Gone(ctx, l.delay) {
			s.endedByItself(p, nil)
			continue
		}
		now := time.Now()
		p.Kill()
		s.killed(Kill{What: idle, At: now}, p)
		s.count(killIdle)
	}
	return ctx.Err()
}

// readyWorker starts weir as often as it takes until it is ready.
func (s *stage) readyWorker(ctx context.Context, name string) (*process, error) {
	for {
		p, err := s.alive(name, life{})
		if err != nil {
			return nil, err
		}
		if err = p.awaitReady(ctx, startWithin); err == nil {
			return p, nil
		}
		if !errors.Is(err, errGone) {
			return nil, err
		}
		s.endedByItself(p, err)
		if !stream.Sleep(ctx, retryStart) {
			return nil, context.Cause(ctx)
		}
	}
}

// awaitIdle waits until no producer waits for an answer and nothing is queued.
func (s *stage) awaitIdle(ctx context.Context, name string) error {
	nc, js, err := s.connected()
	if err != nil {
		return err
	}
	defer nc.Close()
	for limit := time.Now().Add(idleWithin); time.Now().Before(limit); {
		if _, err := s.readyWorker(ctx, name); err != nil {
			return err
		}
		if waiting, err := queued(ctx, js); err == nil && waiting == 0 && s.producing.busy.Load() == 0 {
			return nil
		}
		if !stream.Sleep(ctx, 50*time.Millisecond) {
			return context.Cause(ctx)
		}
	}
	s.note("killed while something was queued still, after %v without new jobs", idleWithin)
	return nil
}

// connected is a connection to the server that comes back whenever the server does. The caller closes it.
func (s *stage) connected() (*nats.Conn, jetstream.JetStream, error) {
	as, err := s.asOperator(nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true), nats.ErrorHandler(nothingNew))
	if err != nil {
		return nil, nil, err
	}
	nc, err := nats.Connect(strings.Join(s.urls, ","), as...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the server: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(2*time.Second))
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("JetStream: %w", err)
	}
	return nc, js, nil
}

package limitstate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/cmd/weir/internal/config/environment"
	"weir/cmd/weir/internal/config/secret"
)

// Redis is the connection to the Redis that counts shared limits. Until that Redis has answered once, jobs are accepted
// and calls wait.
type Redis struct {
	url   secret.Value
	jumps prometheus.Counter
	late  func(ctx context.Context, notes *Notes) error // called at the first answer if it comes after the start; nil: Redis answered at the start

	dialling sync.Mutex             // held while dialling, and by Close
	client   atomic.Pointer[client] // nil until Redis has answered once
}

// client wraps a connection for an atomic pointer.
type client struct{ redisstore.Client }

// DialRedis creates the connection and asks Redis once. It returns nil if limits are not shared. It fails only if Redis
// refuses. If Redis does not answer, the limits dial again later.
func DialRedis(ctx context.Context, s *environment.Settings, registry prometheus.Registerer, log *slog.Logger) (*Redis, error) {
	if !s.RedisURL.IsSet() || !s.Has(environment.RoleDispatch) {
		return nil, nil //nolint:nilnil // no address is no error: limits are counted in the process
	}
	link := &Redis{url: s.RedisURL, jumps: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "weir_limiter_clock_jumps_total", Help: "Times the clock of Redis jumped by more than 250 ms against ours.",
	})}
	registry.MustRegister(link.jumps)
	_, err := link.reach(ctx)
	if errors.Is(err, redisstore.ErrUnreachable) {
		log.Warn("Redis does not answer: jobs are taken, and calls hold until it does", "component", "limits", "err", err)
		return link, nil
	}
	return link, err
}

// LateError reports that Redis answered late, with something that would have refused the start. It ends the process.
type LateError struct{ Err error }

// Error implements error.
func (e *LateError) Error() string { return e.Err.Error() }

// Unwrap returns the reason for the refusal.
func (e *LateError) Unwrap() error { return e.Err }

// WhenLate does nothing if Redis has answered already. Otherwise the first answer of Redis makes look examine the notes
// in Redis. Until look returns nil, Redis is used for nothing else. A *LateError from look ends the process. WhenLate
// must run before the limits are opened.
func (l *Redis) WhenLate(look func(ctx context.Context, notes *Notes) error) {
	if l.client.Load() == nil {
		l.late = look
	}
}

// reach returns the connection, and dials if there is none. Dialling may take two seconds.
func (l *Redis) reach(ctx context.Context) (redisstore.Client, error) {
	l.dialling.Lock()
	defer l.dialling.Unlock()
	if c, err := l.reached(); err == nil {
		return c, nil
	}
	c, err := redisstore.Dial(ctx, l.url.Reveal())
	if err != nil {
		return nil, fmt.Errorf("WEIR_REDIS_URL %s: %w", l.url, err)
	}
	if l.late != nil {
		if err := l.late(ctx, &Notes{l, c}); err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	l.client.Store(&client{c})
	return c, nil
}

// reached returns the connection if there is one. It does not block.
func (l *Redis) reached() (redisstore.Client, error) {
	if c := l.client.Load(); c != nil {
		return c.Client, nil
	}
	return nil, fmt.Errorf("WEIR_REDIS_URL %s: %w", l.url, redisstore.ErrUnreachable)
}

// Close ends the connection, if there is one.
func (l *Redis) Close() error {
	l.dialling.Lock()
	defer l.dialling.Unlock()
	if c := l.client.Load(); c != nil {
		return c.Close()
	}
	return nil
}

// Notes stores notes about a store in Redis, by the store's name.
type Notes struct {
	redis  *Redis
	client redisstore.Client // nil: the notes use redis's client once there is one
}

// Notes returns the notes that Redis keeps. Until Redis has answered once, their methods fail with ErrUnreachable,
// without blocking.
func (l *Redis) Notes() *Notes { return &Notes{redis: l} }

// connected returns the connection that the notes use.
func (n *Notes) connected() (redisstore.Client, error) {
	if n.client != nil {
		return n.client, nil
	}
	return n.redis.reached()
}

// Read reads the note about a store, nil if there is none.
func (n *Notes) Read(ctx context.Context, store string) ([]byte, error) {
	c, err := n.connected()
	if err != nil {
		return nil, err
	}
	return redisstore.ReadNote(ctx, c, store)
}

// Write stores the note about a store, for Read.
func (n *Notes) Write(ctx context.Context, store string, data []byte) error {
	c, err := n.connected()
	if err != nil {
		return err
	}
	return redisstore.WriteNote(ctx, c, store, data)
}

func (n *Notes) String() string { return n.redis.String() }

// String returns the address without secrets.
func (l *Redis) String() string { return "Redis at " + l.url.String() }

// mostJump is the largest movement of Redis's clock against this process's clock, between two readings, that is not
// reported. Calendar periods follow Redis's clock.
const mostJump = 250 * time.Millisecond

// clockWatch detects jumps of the clock of Redis. One goroutine uses it.
type clockWatch struct {
	seen  bool
	ahead time.Duration // how far Redis's clock was ahead of this process's clock at the last reading
	wrong time.Duration // the possible error of ahead
}

// look returns how far Redis's clock has jumped since the last reading. It returns 0 if there was no jump, or if the
// reading is too inexact to tell. It ignores an answer that took long, for example because a script kept Redis busy.
func (w *clockWatch) look(ahead, wrong time.Duration) time.Duration {
	if wrong > mostJump {
		return 0
	}
	jump, doubt, known := ahead-w.ahead, wrong+w.wrong, w.seen
	w.seen, w.ahead, w.wrong = true, ahead, wrong
	if !known || jump.Abs() <= mostJump+doubt {
		return 0
	}
	return jump
}

// levels reads the levels of the limits, and reports a jump of Redis's clock.
func (s *sharedLimits) levels(ctx context.Context) ([]bucket.Level, error) {
	store, err := s.opened()
	if err != nil {
		return nil, err
	}
	ahead, wrong, err := store.Ahead(ctx)
	if err != nil {
		return nil, err
	}
	levels, err := store.Levels(ctx)
	if slices.ContainsFunc(levels, func(l bucket.Level) bool { return l.Unknown }) {
		s.suspect() // the limit may have missed calls under another replica's rules
	}
	if err == nil { // report a jump only after the limits have followed it
		s.look(ahead, wrong)
	}
	return levels, err
}

// look reports a jump of Redis's clock. ahead is how far that clock is ahead of this process's clock, and wrong the
// possible error.
func (s *sharedLimits) look(ahead, wrong time.Duration) {
	jump := s.clock.look(ahead, wrong)
	if jump == 0 {
		return
	}
	s.redis.jumps.Inc()
	s.log.Warn("the clock of Redis has jumped: check its time synchronisation", "jump", jump.Round(time.Millisecond),
		"ahead", ahead.Round(time.Millisecond), "effect", "quotas and budgets follow it with their count; what other limits had counted before a step back counts as of now")
	if jump.Abs() > clockNoise {
		s.moved(jump)
	}
}

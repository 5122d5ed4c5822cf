package limitstate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"weir/bucket"
	"weir/bucket/redisstore"
	"weir/cmd/weir/internal/config"
)

// Redis is the way to the Redis that limits are shared in. It may not answer yet: jobs are taken all the same, and
// calls hold until it does.
type Redis struct {
	url   config.Secret
	jumps prometheus.Counter

	mu     sync.Mutex        // of client; held while it is dialled
	client redisstore.Client // nil until it has answered once
}

// DialRedis makes the link, and waits a while for the first answer; nil when limits are not shared. It fails only when
// Redis answers with a no.
func DialRedis(ctx context.Context, s *config.Settings, registry prometheus.Registerer, log *slog.Logger) (*Redis, error) {
	if !s.RedisURL.IsSet() || !s.Has(config.RoleDispatch) {
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

// reach is the connection; it blocks for some seconds while Redis does not answer.
func (l *Redis) reach(ctx context.Context) (redisstore.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	client, err := redisstore.Dial(ctx, l.url.Reveal())
	if err != nil {
		return nil, fmt.Errorf("WEIR_REDIS_URL %s: %w", l.url, err)
	}
	l.client = client
	return client, nil
}

// Close ends the connection, where there is one.
func (l *Redis) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}

// Read and Write make of Redis a place for notes about a store, by its name. They fail while Redis does not answer.
func (l *Redis) Read(ctx context.Context, store string) ([]byte, error) {
	client, err := l.reach(ctx)
	if err != nil {
		return nil, err
	}
	return redisstore.ReadNote(ctx, client, store)
}

// Write keeps a note: see Read.
func (l *Redis) Write(ctx context.Context, store string, data []byte) error {
	client, err := l.reach(ctx)
	if err != nil {
		return err
	}
	return redisstore.WriteNote(ctx, client, store, data)
}

// String is its address without secrets.
func (l *Redis) String() string { return "Redis at " + l.url.String() }

// mostJump is how far the clock of Redis may move against ours between two looks: calendar periods begin by it.
const mostJump = 250 * time.Millisecond

// clockWatch looks for jumps of the clock of Redis. It is used by one goroutine.
type clockWatch struct {
	known bool
	ahead time.Duration // of Redis against ours, when last seen
	wrong time.Duration // by how much that may be
}

// look compares and returns by how much the clock has jumped, 0 if it has not, as far as can be told. An answer that was long on its way,
// as behind a script that keeps Redis busy, tells nothing of its clock: it is passed over.
func (w *clockWatch) look(ahead, wrong time.Duration) time.Duration {
	if wrong > mostJump {
		return 0
	}
	jump, doubt, known := ahead-w.ahead, wrong+w.wrong, w.known
	w.known, w.ahead, w.wrong = true, ahead, wrong
	if !known || jump.Abs() <= mostJump+doubt {
		return 0
	}
	return jump
}

// levels reads the levels of the limits, and looks at the clock that they are counted by.
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
		s.suspect() // another replica's rules may have missed it
	}
	if err == nil { // the limits go by the clock as it is now
		s.look(ahead, wrong)
	}
	return levels, err
}

// look tells a jump of the clock of Redis.
func (s *sharedLimits) look(ahead, wrong time.Duration) {
	jump := s.clock.look(ahead, wrong)
	if jump == 0 {
		return
	}
	s.redis.jumps.Inc()
	s.log.Warn("the clock of Redis has jumped; look after its time synchronisation", "jump", jump.Round(time.Millisecond),
		"ahead", ahead.Round(time.Millisecond), "effect", "quotas and budgets follow it with their count; what other limits had counted before a step back counts as of now")
	if jump.Abs() > clockNoise {
		s.moved(jump)
	}
}

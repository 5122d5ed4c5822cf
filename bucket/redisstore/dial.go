package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client is a connection to a Redis or a Redis Cluster.
type Client = redis.UniversalClient

// Bounds of the exchange with Redis. A command that takes longer fails; its caller asks again.
const (
	dialTimeout = time.Second
	ioTimeout   = time.Second
	poolSize    = 16
	reachRetry  = 100 * time.Millisecond // pause between two tries of Await
)

// ErrUnreachable says that a Redis does not answer. Unlike a Redis that refuses, it may answer later.
var ErrUnreachable = errors.New("redis does not answer")

// LeastVersion is the oldest Redis that a Store works with.
const LeastVersion = "6.2"

// Dial connects to the Redis, or to any node of the Redis Cluster, at redis://user:password@host:port/db, or rediss://
// for TLS. It checks that the server answers and is new enough. It asks once, and fails with ErrUnreachable within two
// seconds if no server answers. No error holds the url. The caller must close the client.
func Dial(ctx context.Context, url string) (Client, error) { return dial(ctx, url, ask) }

// Await is Dial, repeated until Redis answers, refuses, or ctx ends.
func Await(ctx context.Context, url string) (Client, error) { return dial(ctx, url, askUntil) }

func dial(ctx context.Context, url string, reach func(context.Context, *redis.Client) (map[string]string, error)) (Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errors.New("not the address of a Redis: write redis://host:6379/0, or rediss:// for TLS") // err quotes the url
	}
	redis.SetLogger(quiet{}) // the client returns every error too
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = dialTimeout, ioTimeout, ioTimeout, ioTimeout
	o.PoolSize, o.ContextTimeoutEnabled = poolSize, true
	o.MaxRetries, o.DialerRetries = -1, 1 // no retries by the client: a slot that is asked for twice is lost
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	single := redis.NewClient(o)
	info, err := reach(ctx, single)
	if err == nil {
		err = checkVersion(info["redis_version"])
	}
	if err != nil {
		return nil, errors.Join(err, single.Close())
	}
	if info["redis_mode"] != "cluster" {
		return single, nil
	}
	if err := single.Close(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig,
		DialTimeout: dialTimeout, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, PoolTimeout: ioTimeout,
		PoolSize: poolSize, ContextTimeoutEnabled: true, MaintNotificationsConfig: o.MaintNotificationsConfig,
	}), nil
}

// ask returns the server's INFO.
func ask(ctx context.Context, c *redis.Client) (map[string]string, error) {
	text, err := c.Info(ctx, "server").Result()
	switch {
	case err == nil:
		return fields(text), nil
	case refused(err):
		return nil, fmt.Errorf("redis at %s: %w", c.Options().Addr, err)
	default:
		return nil, fmt.Errorf("%w at %s: start it, or correct the address: %w", ErrUnreachable, c.Options().Addr, err)
	}
}

// askUntil repeats ask until the server answers.
func askUntil(ctx context.Context, c *redis.Client) (map[string]string, error) {
	tick := time.NewTicker(reachRetry)
	defer tick.Stop()
	for {
		info, err := ask(ctx, c)
		if !errors.Is(err, ErrUnreachable) {
			return info, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// refused reports whether asking again cannot change the answer: the password is wrong, or the user lacks a right.
func refused(err error) bool {
	for _, code := range []string{"WRONGPASS", "NOAUTH", "NOPERM", "ERR "} {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

func checkVersion(version string) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err == nil && (major < 6 || major == 6 && minor < 2) {
		return fmt.Errorf("redis is version %s; weir needs %s or later: upgrade it", version, LeastVersion)
	}
	return nil
}

// fields parses the answer to INFO.
func fields(info string) map[string]string {
	m := map[string]string{}
	for line := range strings.SplitSeq(info, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[name] = value
		}
	}
	return m
}

// quiet is the client's logger. It drops everything.
type quiet struct{}

// Printf implements the client's logger.
func (quiet) Printf(context.Context, string, ...any) {}

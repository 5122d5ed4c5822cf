package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// noteAge is how long a note is kept after it was last written.
const noteAge = 400 * 24 * time.Hour

func noteKey(name string) string { return "{weir}:note:" + name }

// ReadNote returns the bytes that WriteNote stored under a name, nil if there are none.
func ReadNote(ctx context.Context, c Client, name string) ([]byte, error) {
	data, err := c.Get(ctx, noteKey(name)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return data, nil
}

// WriteNote stores bytes under a name for 400 days. It replaces the bytes that were stored under the name before.
func WriteNote(ctx context.Context, c Client, name string, data []byte) error {
	if err := c.Set(ctx, noteKey(name), data, noteAge).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

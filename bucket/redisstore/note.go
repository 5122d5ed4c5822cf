package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// noteAge is how long a note is kept that nobody writes any more.
const noteAge = 400 * 24 * time.Hour

func noteKey(name string) string { return "{weir}:note:" + name }

// ReadNote reads what WriteNote kept by a name, nil for nothing.
func ReadNote(ctx context.Context, c Client, name string) ([]byte, error) {
	data, err := c.Get(ctx, noteKey(name)).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return data, nil
}

// WriteNote keeps some bytes by a name, in place of former ones, for 400 days.
func WriteNote(ctx context.Context, c Client, name string, data []byte) error {
	if err := c.Set(ctx, noteKey(name), data, noteAge).Err(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	return nil
}

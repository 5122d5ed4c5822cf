//go:build linux

package main

import (
	"context"

	"weir/cmd/internal/child"
	"weir/cmd/internal/contest"
)

// startRedis starts a redis-server that syncs its log as sync says, always or everysec. It returns the address when
// Redis answers. If redis-server is missing, it installs it.
func startRedis(ctx context.Context, s *stage, name, sync string) (server *child.Process, addr string, err error) {
	if err := contest.FindRedis(); err != nil {
		if err := apt(ctx, "redis-server"); err != nil {
			return nil, "", err
		}
	}
	redis, err := s.Redis(ctx, name, sync)
	if err != nil {
		return nil, "", err
	}
	return redis.Process, redis.Addr, nil
}

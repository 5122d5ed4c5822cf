//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// startRedis starts a redis-server that syncs its log always or everysec, and returns its address. redis-server is installed where it is
// missing.
func startRedis(ctx context.Context, s *stage, name, sync string) (server *process, addr string, err error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if err := apt(ctx, "redis-server"); err != nil {
			return nil, "", err
		}
	}
	dir := s.path(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("a directory for Redis: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	server, err = s.start(command{
		name: "redis-server", path: "redis-server", dir: dir,
		args: []string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", sync,
			"--maxmemory-policy", "noeviction",
		},
	})
	if err != nil {
		return nil, "", err
	}
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("redis-server did not come up within %v", startWithin))
	defer cancel()
	return server, addr, until(ctx, server, func() bool { return pong(addr) })
}

// pong reports whether a Redis answers.
func pong(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	got := make([]byte, 5)
	_, err = conn.Read(got)
	return err == nil && bytes.Equal(got, []byte("+PONG"))
}

//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"weir/cmd/internal/child"
	"weir/cmd/internal/machine"
)

// startRedis starts a redis-server that syncs its log as sync says, always or everysec. It returns the address when
// Redis answers. If redis-server is missing, it installs it.
func startRedis(ctx context.Context, s *stage, name, sync string) (server *child.Process, addr string, err error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if err := apt(ctx, "redis-server"); err != nil {
			return nil, "", err
		}
	}
	dir := s.Path(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, "", fmt.Errorf("a directory for Redis: %w", err)
	}
	if addr, err = machine.FreeAddr(); err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(addr)
	server, err = s.Start(child.Options{
		Name: "redis-server", Path: "redis-server", Dir: dir,
		Args: []string{
			"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", sync,
			"--maxmemory-policy", "noeviction",
		},
	})
	if err != nil {
		return nil, "", err
	}
	return server, addr, until(ctx, "redis-server", server, func() bool { return pong(addr) })
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

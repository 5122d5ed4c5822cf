package bench

import (
	"context"
	"net"
	"os/exec"
	"testing"

	"weir/ingest/await"

	"github.com/redis/go-redis/v9"
)

// startRedis starts a redis-server that ends with the benchmark, and returns a client for it.
func startRedis(b *testing.B) *redis.Client {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := l.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", b.TempDir(), "--save", "", "--loglevel", "warning")
	if err := cmd.Start(); err != nil {
		b.Skip("redis-server cannot be started (apt-get install redis-server): ", err)
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Process.Kill()
		_ = await.Result(b, "the end of a killed redis-server", cmd.Wait)
	})
	await.Until(b, "redis-server answers", func() bool { return client.Ping(context.Background()).Err() == nil })
	return client
}

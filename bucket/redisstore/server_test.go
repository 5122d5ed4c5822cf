package redisstore

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"weir/ingest/await"
)

// server is a real redis-server of one test, on a free port and with a directory of its own.
type server struct {
	t    testing.TB
	addr string
	dir  string
	args []string
	cmd  *exec.Cmd
}

// startServer starts a redis-server. It skips the test if redis-server is not installed.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, addr: l.Addr().String(), dir: t.TempDir(), args: args}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s.start()
	t.Cleanup(s.kill)
	return s
}

func (s *server) start() {
	s.t.Helper()
	_, port, _ := net.SplitHostPort(s.addr)
	args := append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no", "--loglevel", "warning"}, s.args...)
	s.cmd = exec.Command("redis-server", args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := s.client()
	ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
	defer cancel()
	for c.Ping(ctx).Err() != nil {
		if ctx.Err() != nil {
			s.t.Fatalf("redis-server on %s does not answer", s.addr)
		}
	}
}

func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // SIGKILL: the test is about what a crash leaves
	_ = await.Result(s.t, "the end of a killed redis-server", s.cmd.Wait)
	s.cmd = nil
}

func (s *server) client() *redis.Client {
	c := redis.NewClient(&redis.Options{ // on a slow machine it must not give up and ask twice
		Addr: s.addr, DialTimeout: await.Patience, ReadTimeout: await.Patience, WriteTimeout: await.Patience, PoolTimeout: await.Patience,
	})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // servers are killed on purpose
	if addr := os.Getenv(asCaller); addr != "" {
		callForEver(addr)
		return
	}
	os.Exit(m.Run())
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// names makes api names, so that tests and scenes on one server do not share keys.
var names = func() func() string {
	var given atomic.Int64
	return func() string { return "api" + strconv.FormatInt(given.Add(1), 10) }
}()

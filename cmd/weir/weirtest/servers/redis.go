package servers

import (
	"net"
	"os"
	"os/exec"
	"testing"

	"weir/bucket/redisstore"
	"weir/ingest/await"
)

// RedisServer is a real redis-server for one test, on a free port. It does not persist, so killing it loses all its
// data.
type RedisServer struct {
	T    *testing.T
	Addr string
	args []string
	cmd  *exec.Cmd
}

func StartRedis(t *testing.T, args ...string) *RedisServer {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	s := &RedisServer{T: t, Addr: FreePort(t), args: args}
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

func (s *RedisServer) Start() {
	s.T.Helper()
	_, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = exec.Command("redis-server", append([]string{
		"--port", port, "--bind", "127.0.0.1", "--dir", s.T.TempDir(), "--save", "", "--appendonly", "no",
	}, s.args...)...)
	if err := s.cmd.Start(); err != nil {
		s.T.Fatal(err)
	}
	s.Client() // it answers
}

func (s *RedisServer) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill() // SIGKILL
	_ = await.Result(s.T, "the end of a killed redis-server", s.cmd.Wait)
	s.cmd = nil
}

func (s *RedisServer) Signal(sig os.Signal) {
	s.T.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.T.Fatal(err)
	}
}

func (s *RedisServer) Client() redisstore.Client {
	s.T.Helper()
	c, err := redisstore.Await(await.Context(s.T, "a redis-server to answer"), "redis://"+s.Addr)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = c.Close() })
	return c
}

package torture

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"weir/cmd/weir-torture/internal/network"
)

// redisServer is the fleet's Redis. It is configured as in deploy/, but syncs every write.
type redisServer struct {
	path    string // of the program
	addr    string
	process *process
}

func newRedis(p *network.Ports) (*redisServer, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("a fleet needs redis-server for its shared limits (apt-get install redis-server): %w", err)
	}
	addr, err := p.Free()
	return &redisServer{path: path, addr: addr}, err
}

func (f *fleet) redisDir() string { return filepath.Join(f.programs.o.Dir, "redis") }

// startRedis starts Redis with its old file and address, and waits until Redis has read the file.
func (f *fleet) startRedis(ctx context.Context) error {
	if err := os.MkdirAll(f.redisDir(), 0o700); err != nil {
		return fmt.Errorf("a directory for Redis: %w", err)
	}
	host, port, err := net.SplitHostPort(f.redis.addr)
	if err != nil {
		return fmt.Errorf("an address for Redis: %w", err)
	}
	f.redis.process, err = f.programs.start(program{
		name: "redis", path: f.redis.path, mark: "Ready to accept connections",
		args: []string{
			"--bind", host, "--port", port, "--dir", f.redisDir(), "--save", "", "--appendonly", "yes", "--appendfsync", "always",
			"--maxmemory-policy", "noeviction",
		},
	})
	if err != nil {
		return err
	}
	return f.redis.process.awaitReady(ctx, startWithin)
}

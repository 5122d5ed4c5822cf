package contest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"weir/cmd/internal/child"
	"weir/cmd/internal/machine"
)

// Redis is a redis-server as a process of its own.
type Redis struct {
	*child.Process
	Addr string
}

const redisProgram = "redis-server"

// FindRedis fails if redis-server is not installed.
func FindRedis() error {
	if _, err := exec.LookPath(redisProgram); err != nil {
		return fmt.Errorf("%s is not installed (apt-get install %s, brew install redis): %w", redisProgram, redisProgram, err)
	}
	return nil
}

// Redis starts a redis-server that syncs its log as sync says, always or everysec. It returns when Redis answers.
func (s *Stage) Redis(ctx context.Context, name, sync string) (*Redis, error) {
	if err := FindRedis(); err != nil {
		return nil, err
	}
	dir := s.Path(name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("a directory for Redis: %w", err)
	}
	addr, err := machine.FreeAddr()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("an address for Redis: %w", err)
	}
	ready := make(chan string, 1)
	p, err := s.Start(child.Options{
		Name: redisProgram, Path: redisProgram, Dir: dir,
		Args: []string{
			"--port", port, "--bind", host, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", sync,
			"--maxmemory-policy", "noeviction",
		},
		Line: func(line string) {
			if strings.Contains(line, "Ready to accept connections") {
				select {
				case ready <- line:
				default:
				}
			}
		},
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, StartWithin, fmt.Errorf("it did not come up within %v", StartWithin))
	defer cancel()
	_, err = line(ctx, redisProgram, p, ready)
	return &Redis{p, addr}, err
}

// Commands counts what a Redis has carried out since its start.
type Commands struct {
	Scripts int64 // runs of scripts, each one request of a client
	All     int64 // commands, also those that scripts run
}

// redisWithin bounds a question to a Redis, and mostInfo its answer in bytes.
const (
	redisWithin = 10 * time.Second
	mostInfo    = 1 << 20
)

// Commands asks the Redis for its counts.
func (r *Redis) Commands(ctx context.Context) (Commands, error) {
	text, err := r.info(ctx, "commandstats")
	if err != nil {
		return Commands{}, fmt.Errorf("ask Redis for its counts: %w", err)
	}
	return readCommands(text), nil
}

// info asks for a section of what the Redis tells of itself.
func (r *Redis) info(ctx context.Context, section string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, redisWithin)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", r.Addr)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end) // fails only on a closed connection
	}
	if _, err := fmt.Fprintf(conn, "INFO %s\r\n", section); err != nil {
		return "", err
	}
	answer := bufio.NewReader(conn)
	head, err := answer.ReadString('\n') // "$" and the number of bytes that follow
	if err != nil {
		return "", err
	}
	size, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "$")))
	if err != nil || size < 0 || size > mostInfo {
		return "", fmt.Errorf("it answered %q", head)
	}
	text := make([]byte, size)
	_, err = io.ReadFull(answer, text)
	return string(text), err
}

// readCommands adds up the lines of the section commandstats, such as "cmdstat_evalsha:calls=3,usec=…".
func readCommands(text string) (sum Commands) {
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":calls=")
		if !ok {
			continue
		}
		count, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.ParseInt(count, 10, 64) // 0 if Redis ever writes it otherwise
		sum.All += n
		switch name {
		case "cmdstat_eval", "cmdstat_evalsha":
			sum.Scripts += n
		}
	}
	return sum
}

package contest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"weir/cmd/internal/child"
	"weir/cmd/internal/machine"
)

const (
	// StartWithin bounds the start of any process.
	StartWithin = 30 * time.Second
	stopWithin  = 30 * time.Second
)

// Stage has what contenders need: a directory, and processes that end with it. It is not safe for concurrent use.
type Stage struct {
	Dir  string
	Weir string   // the path of weir's program
	Self []string // the command that plays a role of this program: its path and the arguments before the role

	cleanups []func() error
}

// NewStage makes a directory below parent or, if parent is "", below the system's directory for temporary files. The
// caller must call Close, even after an error. To play a role, the stage starts this program with the arguments in
// role, followed by the role's name and settings.
func NewStage(parent, pattern string, role ...string) (*Stage, error) {
	s := &Stage{}
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
	s.Weir, s.Self = self, append([]string{self}, role...)
	if s.Dir, err = os.MkdirTemp(parent, pattern); err != nil {
		return s, fmt.Errorf("a directory for the measurement: %w", err)
	}
	s.Later(func() error { return os.RemoveAll(s.Dir) })
	return s, nil
}

// Path returns the path of a file in the stage's directory.
func (s *Stage) Path(name string) string { return filepath.Join(s.Dir, name) }

// Later makes Close call do. Close calls the functions in reverse order.
func (s *Stage) Later(do func() error) { s.cleanups = append(s.cleanups, do) }

// Close undoes in reverse order what the stage has set up.
func (s *Stage) Close() error {
	var err error
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		err = errors.Join(err, s.cleanups[i]())
	}
	return err
}

// Start starts a process that ends with the stage, or with this process.
func (s *Stage) Start(o child.Options) (*child.Process, error) {
	if o.Attributes == nil {
		o.Attributes = machine.ChildAttributes
	}
	p, err := child.Start(o)
	if err != nil {
		return nil, err
	}
	s.Later(func() error { return p.Stop(stopWithin) })
	return p, nil
}

// Server starts a nats-server as a process of its own. It returns its URL when the server listens.
func (s *Stage) Server(ctx context.Context, name, durability string) (url string, p *child.Process, err error) {
	p, said, err := s.server(name, durability)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, StartWithin, fmt.Errorf("it did not come up within %v", StartWithin))
	defer cancel()
	url, err = line(ctx, "nats-server", p, said)
	return url, p, err
}

// server starts a nats-server with further arguments. said receives the URL of its monitoring, if the arguments ask for
// that, and then the URL for clients.
func (s *Stage) server(name, durability string, more ...string) (p *child.Process, said <-chan string, err error) {
	urls := make(chan string, 2)
	p, err = s.Start(child.Options{
		Name: "nats-server", Path: s.Weir, Dir: s.Dir,
		Args: append([]string{"nats-server", "--listen", "127.0.0.1:0", "--dir", s.Path(name), "--durability", durability}, more...),
		Line: func(line string) {
			if what, url, ok := strings.Cut(line, " "); ok && (what == "listening" || what == "monitoring") {
				select {
				case urls <- url:
				default:
				}
			}
		},
	})
	return p, urls, err
}

// line waits for a line that a process writes. It fails if the process ends or ctx ends first.
func line(ctx context.Context, name string, p *child.Process, lines <-chan string) (string, error) {
	select {
	case line := <-lines:
		return line, nil
	case <-p.Exited():
		return "", fmt.Errorf("%s ended: %s\n%s", name, p.State(), p.Tail())
	case <-ctx.Done():
		return "", fmt.Errorf("%s: %w\n%s", name, context.Cause(ctx), p.Tail())
	}
}

// Role starts a role of this program as a process, and returns when the role has started.
func (s *Stage) Role(ctx context.Context, name string, at Settings) (*Role, error) {
	what := "producer"
	if at.Worker {
		what = "worker"
	}
	return s.Play(ctx, name+"'s "+what, at, slices.Concat(s.Self, []string{name})...)
}

// Play starts a program that takes orders. Its last argument is at, as JSON. Play returns when the program has started.
func (s *Stage) Play(ctx context.Context, name string, at Settings, program ...string) (*Role, error) {
	text, err := json.Marshal(at)
	if err != nil {
		return nil, fmt.Errorf("the settings of %s: %w", name, err)
	}
	in, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.Later(orders.Close)
	r := &Role{name: name, orders: orders, answers: make(chan string, 1)}
	r.Process, err = s.Start(child.Options{
		Name: name, Path: program[0], Args: slices.Concat(program[1:], []string{string(text)}), Input: in,
		Line: func(line string) {
			if strings.HasPrefix(line, "{") {
				select {
				case r.answers <- line:
				default: // more answers than orders
				}
			}
		},
	})
	_ = in.Close() // the process has its own copy
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, StartWithin, fmt.Errorf("it did not start within %v", StartWithin))
	defer cancel()
	_, err = r.answer(ctx)
	return r, err
}

// API starts the API as a process of its own.
func (s *Stage) API(ctx context.Context) (Judge, error) {
	addr, err := machine.FreeAddr()
	if err != nil {
		return Judge{}, err
	}
	api, err := s.Play(ctx, "the api", Settings{Store: addr}, slices.Concat(s.Self, []string{"api"})...)
	if err != nil {
		return Judge{}, err
	}
	return Judge{URL: "http://" + addr, PID: api.PID()}, nil
}

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// startWithin bounds the start of anything.
const startWithin = 30 * time.Second

// stage is what the contenders stand on: a directory, the api, and the processes that were started.
type stage struct {
	o        options
	dir      string
	weir     string // the binary
	self     string // this program's
	judge    judge
	cleanups []func() error
}

// newStage makes the directory, builds weir unless one is given, and starts the api. close must be called, also after an error.
func newStage(ctx context.Context, o options) (*stage, error) {
	s := &stage{o: o, weir: o.Weir}
	var err error
	if s.dir, err = os.MkdirTemp(o.Dir, "weir-peers-"); err != nil {
		return s, fmt.Errorf("a directory for the measurement: %w", err)
	}
	s.later(func() error { return os.RemoveAll(s.dir) })
	if s.self, err = os.Executable(); err != nil {
		return s, fmt.Errorf("find this program: %w", err)
	}
	if s.weir == "" {
		if s.weir, err = s.build(ctx); err != nil {
			return s, err
		}
	} else if s.weir, err = filepath.Abs(s.weir); err != nil {
		return s, err
	}
	if s.judge.process, err = s.start(command{name: "the api", path: s.self, args: []string{"api"}}); err != nil {
		return s, err
	}
	s.judge.url, err = s.judge.process.await(ctx, func(line string) bool { return strings.HasPrefix(line, "http://") })
	return s, err
}

// build makes weir of the source that this module stands in.
func (s *stage) build(ctx context.Context) (string, error) {
	root, err := done(ctx, command{name: "go list", path: "go", args: []string{"list", "-m", "-f", "{{.Dir}}", "weir"}})
	if err != nil {
		return "", fmt.Errorf("find weir's source (run this in deploy/bench, or name a binary with --weir): %w", err)
	}
	binary := s.path("weir-binary")
	_, err = done(ctx, command{name: "go build", path: "go", args: []string{"build", "-trimpath", "-o", binary, "./cmd/weir"}, dir: root})
	return binary, err
}

func (s *stage) path(name string) string { return filepath.Join(s.dir, name) }

func (s *stage) later(do func() error) { s.cleanups = append(s.cleanups, do) }

// close takes down what was put up, the last first.
func (s *stage) close() error {
	var err error
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		err = errors.Join(err, s.cleanups[i]())
	}
	return err
}

// start starts a process that ends with the stage.
func (s *stage) start(c command) (*process, error) { return s.startLike(c, syscall.SIGTERM) }

// startLike is start for a process that another signal ends.
func (s *stage) startLike(c command, with syscall.Signal) (*process, error) {
	p, err := start(c)
	if err != nil {
		return nil, err
	}
	s.later(func() error { return p.end(with) })
	return p, nil
}

// role starts a role of this program, and returns when it is there.
func (s *stage) role(ctx context.Context, name string, at settings) (*process, error) {
	text, err := json.Marshal(at)
	if err != nil {
		return nil, fmt.Errorf("the settings of a role: %w", err)
	}
	what := "producer"
	if at.Worker {
		what = "worker"
	}
	return s.there(ctx, command{name: name + "'s " + what, path: s.self, args: []string{"role", name, string(text)}})
}

// there starts a role and returns when it says that it is there.
func (s *stage) there(ctx context.Context, c command) (*process, error) {
	p, err := s.start(c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("%s was not there within %v", c.name, startWithin))
	defer cancel()
	_, err = p.answer(ctx)
	return p, err
}

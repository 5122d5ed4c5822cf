//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"weir/cmd/internal/child"
	"weir/cmd/internal/contest"
	"weir/cmd/internal/machine"
)

// stage has what the contenders need.
type stage struct {
	*contest.Stage
	o     options
	judge contest.Judge
}

// newStage makes the directory, builds weir unless a binary is given, and starts the api. The caller must call Close,
// even after an error.
func newStage(ctx context.Context, o options) (*stage, error) {
	base, err := contest.NewStage(o.Dir, "weir-peers-", "role")
	s := &stage{Stage: base, o: o}
	if err != nil {
		return s, err
	}
	if o.Weir == "" {
		s.Weir, err = s.build(ctx)
	} else {
		s.Weir, err = filepath.Abs(o.Weir)
	}
	if err != nil {
		return s, err
	}
	s.judge, err = s.API(ctx)
	return s, err
}

// build builds weir from the source that this module belongs to.
func (s *stage) build(ctx context.Context) (string, error) {
	root, err := done(ctx, child.Options{Name: "go list", Path: "go", Args: []string{"list", "-m", "-f", "{{.Dir}}", "weir"}})
	if err != nil {
		return "", fmt.Errorf("find weir's source (run this in cmd/weir-peers, or name a binary with --weir): %w", err)
	}
	binary := s.Path("weir-binary")
	_, err = done(ctx, child.Options{Name: "go build", Path: "go", Args: []string{"build", "-trimpath", "-o", binary, "./cmd/weir"}, Dir: root})
	return binary, err
}

// done runs a command to its end and returns its output.
func done(ctx context.Context, o child.Options) (string, error) {
	cmd := exec.CommandContext(ctx, o.Path, o.Args...)
	cmd.Dir, cmd.Env = o.Dir, append(os.Environ(), o.Env...)
	if o.Attributes == nil {
		o.Attributes = machine.ChildAttributes
	}
	cmd.SysProcAttr = o.Attributes()
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w", o.Name, errors.Join(err, context.Cause(ctx)))
		if last := bytes.TrimSpace(out[max(0, len(out)-600):]); len(last) > 0 {
			err = fmt.Errorf("%w: %s", err, last)
		}
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

// until waits until is returns true. It fails if the process ends first.
func until(ctx context.Context, name string, p *child.Process, is func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, contest.StartWithin, fmt.Errorf("%s did not come up within %v", name, contest.StartWithin))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-p.Exited():
			return fmt.Errorf("%s ended: %s\n%s", name, p.State(), p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%w\n%s", context.Cause(ctx), p.Tail())
		}
	}
	return nil
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"weir/cmd/internal/contest"
	"weir/cmd/internal/machine"
	"weir/cmd/weir/internal/cli"
)

// Options of a measurement. All are required except Dir, Redis and, unless a fleet is measured, Replicas.
type Options struct {
	Rounds     int    // how many rounds each contender runs, in turns
	Jobs       int    // jobs of a round; for latency: samples of a round
	Keys       int    // how many keys the jobs have; for keys: how many keys wait
	Body       int    // bytes of a job's body
	Seconds    int    // for pace: length of a round
	Durability string // durability of weir's server: always or interval
	Server     string // Inside, Beside, or the URL of a server
	Redis      string // URL of a Redis, in which dispatch also measures limits; "": none
	Replicas   []int  // for fleet: the sizes that are measured, in replicas; fleet starts its own servers
	Dir        string // directory for the stores; "": the system's directory for temporary files

	As   cli.Format
	Out  io.Writer // receives the report
	Talk io.Writer // receives the progress
}

// Bounds of the options.
const (
	mostRounds  = 100
	mostJobs    = 1_000_000
	mostKeys    = 1_000_000
	mostBody    = 256 << 10
	mostSeconds = 3600

	mostReplicas = 10
)

// check checks the options for a measurement.
func (o *Options) check(name string) error {
	for _, b := range []struct {
		flag      string
		is, least int
		most      int
	}{
		{"--rounds", o.Rounds, 1, mostRounds},
		{"--jobs", o.Jobs, 10, mostJobs},
		{"--keys", o.Keys, 1, mostKeys},
		{"--body", o.Body, contest.LeastBody, mostBody},
		{"--seconds", o.Seconds, 2, mostSeconds},
	} {
		if b.is < b.least || b.is > b.most {
			return cli.Usage(fmt.Errorf("%s %d: must be from %d to %d", b.flag, b.is, b.least, b.most))
		}
	}
	if o.Durability != "always" && o.Durability != "interval" {
		return cli.Usage(fmt.Errorf("--durability %q: it is always or interval", o.Durability))
	}
	if o.Redis != "" && o.Server != Inside {
		return cli.Usage(errors.New("--redis needs the server inside: two weirs on one server would be replicas of each other"))
	}
	if name == "fleet" {
		return o.checkFleet()
	}
	return nil
}

// checkFleet checks what only a fleet needs.
func (o *Options) checkFleet() error {
	if len(o.Replicas) == 0 {
		return cli.Usage(errors.New("--replicas: give one number or more, such as 1,2,3"))
	}
	for i, n := range o.Replicas {
		if n < 1 || n > mostReplicas {
			return cli.Usage(fmt.Errorf("--replicas %d: must be from 1 to %d", n, mostReplicas))
		}
		if slices.Contains(o.Replicas[:i], n) {
			return cli.Usage(fmt.Errorf("--replicas: %d is there twice", n))
		}
	}
	if err := contest.FindRedis(); err != nil {
		return fmt.Errorf("replicas share a limit in Redis: %w", err)
	}
	return nil
}

// measurement makes one of the measurements. It fills in the report's contenders and ratios.
type measurement func(ctx context.Context, s *stage, r *Report) error

// Names are the names of the measurements.
var Names = []string{"accept", "dispatch", "pace", "keys", "latency", "fleet"}

var measurements = map[string]measurement{
	"accept": accept, "dispatch": dispatch, "pace": pace, "keys": keys, "latency": latency, "fleet": fleet,
}

// longest bounds a whole measurement.
const longest = 2 * time.Hour

// Run makes a measurement and prints the report. It blocks until the measurement is done, ctx ends, or SIGINT or
// SIGTERM comes. Before it returns, it stops everything that it has started.
func Run(ctx context.Context, name string, o Options) (err error) {
	if err := o.check(name); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("the measurement did not end within %v", longest))
	defer cancel()
	alive, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	// The command that calls Play plays the roles: `weir bench role`.
	base, err := contest.NewStage(o.Dir, "weir-bench-", "bench", "role")
	defer func() { err = errors.Join(err, base.Close()) }()
	if err != nil {
		return err
	}
	s := &stage{Stage: base, o: o, fail: fail}
	if s.api, err = s.API(ctx); err != nil {
		return err
	}
	began := time.Now()
	r := &Report{Bench: name, Durability: o.Durability, Rounds: o.Rounds, Jobs: o.Jobs, Keys: o.Keys, Body: o.Body}
	if r.Machine, err = contest.Look(s.Dir); err != nil {
		return err
	}
	if name == "pace" {
		r.Jobs, r.Seconds = 0, o.Seconds
	}
	held := machine.MeasureHeldUp()
	err = measurements[name](alive, s, r)
	r.HeldUp = float64(held.Worst()) / float64(time.Millisecond)
	held.Stop()
	if err != nil {
		if cause := context.Cause(alive); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	r.Took = time.Since(began).Seconds()
	return r.Print(o.Out, o.As)
}

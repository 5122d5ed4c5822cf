//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"weir/cmd/internal/contest"
)

// options are the options of a run.
type options struct {
	Rounds, Jobs, Keys, Body, AtOnce, Seconds int
	BullWorkers                               int
	Rates                                     []int
	Measures, Only                            []string
	Weir, Dir                                 string
	JSON                                      bool
	talk                                      io.Writer
}

// Bounds of the options.
const (
	mostRounds  = 100
	mostJobs    = 1_000_000
	mostKeys    = 1000
	mostSize    = 256 << 10
	mostAtOnce  = 1000
	mostSeconds = 600
	mostRate    = 100_000
	mostWorkers = 16
)

// The measures.
const (
	endToEnd = "dispatch"
	intake   = "accept"
	rates    = "rate"
)

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("weir-peers", flag.ContinueOnError)
	f.Usage = func() {
		_, _ = fmt.Fprint(f.Output(), "Measures weir beside bare NATS, River, Asynq and BullMQ, in alternating rounds of one run.\nMissing peers are installed by apt-get "+
			"(as root) and npm, or left out, and the report says so.\n\n")
		f.PrintDefaults()
	}
	f.IntVar(&o.Rounds, "rounds", 5, "rounds of each contender, in turns")
	f.IntVar(&o.Jobs, "jobs", 10_000, "jobs of a round")
	f.IntVar(&o.Keys, "keys", 64, "keys that the jobs are of, where there are keys: weir's, of which each gets its share of the calls at once")
	f.IntVar(&o.Body, "body", 256, "bytes of a job's body")
	f.IntVar(&o.AtOnce, "at-once", 64, "calls that each contender makes at once")
	f.IntVar(&o.Seconds, "seconds", 10, "of a round that keeps a rate")
	f.IntVar(&o.BullWorkers, "bullmq-workers", bullWorkers, "processes that BullMQ's calls at once are shared out to")
	kept := f.String("rates", "10,100,1000", "calls a second on one key")
	measures := f.String("measure", strings.Join([]string{endToEnd, intake, rates}, ","), "what to measure")
	only := f.String("only", "", "peers to measure beside weir: nats, river, asynq, bullmq (default: all)")
	f.StringVar(&o.Weir, "weir", "", "weir's binary (default: it is built)")
	f.StringVar(&o.Dir, "dir", "", "where the stores are made for the time (default: the system's directory for temporary files)")
	f.BoolVar(&o.JSON, "json", false, "the report as one JSON object, with every round")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag", f.Arg(0))
	}
	o.Measures = strings.Split(*measures, ",")
	for _, m := range o.Measures {
		if !slices.Contains([]string{endToEnd, intake, rates}, m) {
			return o, fmt.Errorf("--measure %s: it is of %s, %s, %s", m, endToEnd, intake, rates)
		}
	}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(peers, func(p peer) bool { return p.name == name }) {
			return o, fmt.Errorf("--only %s: no peer has that name", name)
		}
	}
	for text := range strings.SplitSeq(*kept, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil || rate < 1 || rate > mostRate {
			return o, fmt.Errorf("--rates %s: each is from 1 to %d", text, mostRate)
		}
		o.Rates = append(o.Rates, rate)
	}
	for _, b := range []struct {
		name            string
		is, least, most int
	}{
		{"rounds", o.Rounds, 1, mostRounds},
		{"jobs", o.Jobs, 10, mostJobs},
		{"keys", o.Keys, 1, mostKeys},
		{"body", o.Body, contest.LeastBody, mostSize},
		{"at-once", o.AtOnce, 1, mostAtOnce},
		{"seconds", o.Seconds, 2, mostSeconds},
		{"bullmq-workers", o.BullWorkers, 1, mostWorkers},
	} {
		if b.is < b.least || b.is > b.most {
			return o, fmt.Errorf("--%s %d: must be from %d to %d", b.name, b.is, b.least, b.most)
		}
	}
	return o, nil
}

// say writes a line of progress.
func (o options) say(format string, args ...any) {
	_, _ = fmt.Fprintf(o.talk, format+"\n", args...)
}

// longest bounds a whole run.
const longest = 2 * time.Hour

func main() {
	err := run(context.Background(), os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		_, _ = fmt.Fprintln(os.Stderr, "weir-peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == "role" {
		return contest.Play(ctx, os.Stdin, os.Stdout, map[string]contest.Make{"river": riverRole, "asynq": asynqRole}, args[1], args[2])
	}
	o, err := parse(args)
	if err != nil {
		return err
	}
	o.talk = os.Stderr
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("the run did not end within %v", longest))
	defer cancel()
	r := &Report{
		Command: strings.TrimSpace("weir-peers " + strings.Join(args, " ")), Rounds: o.Rounds, Jobs: o.Jobs, Keys: o.Keys, AtOnce: o.AtOnce,
		Body: o.Body, Seconds: o.Seconds,
	}
	if err := r.fill(ctx, o); err != nil {
		return err
	}
	if err := r.print(os.Stdout, o.JSON); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// fill measures, and fills the report.
func (r *Report) fill(ctx context.Context, o options) (err error) {
	began := time.Now()
	s, err := newStage(ctx, o)
	defer func() { err = errors.Join(err, s.Close()) }()
	if err != nil {
		return err
	}
	m, err := contest.Look(s.Dir)
	if err != nil {
		return err
	}
	r.Machine = Machine(m)
	var all []*contender
	var started []string
	for _, p := range peers {
		if p.name != "weir" && len(o.Only) > 0 && !slices.Contains(o.Only, p.name) {
			continue
		}
		o.say("starting %s", p.name)
		more, err := p.start(ctx, s)
		switch {
		case err != nil && (p.name == "weir" || ctx.Err() != nil):
			return err
		case err != nil:
			o.say("%s is left out: %v", p.name, err)
			r.leaveOut(p.name, err)
			continue
		case p.without != "":
			r.Unlimited = append(r.Unlimited, LeftOut{more[0].name, p.without})
		}
		for _, c := range more {
			c.peer = p.name
		}
		started = append(started, p.name)
		all = append(all, more...)
	}
	r.Versions = versions(ctx, s, started)
	if slices.Contains(o.Measures, endToEnd) {
		if r.EndToEnd, err = s.contest(ctx, "end to end", all, brought, r); err != nil {
			return err
		}
		compare(r.EndToEnd)
		r.Best = best(r.EndToEnd, o.Rounds)
	}
	if slices.Contains(o.Measures, intake) {
		takers := slices.DeleteFunc(slices.Clone(all), func(c *contender) bool { return c.callsOnly })
		if r.Intake, err = s.contest(ctx, "intake", takers, taken, r); err != nil {
			return err
		}
		compare(r.Intake)
	}
	if slices.Contains(o.Measures, rates) {
		if err := s.keep(ctx, all, r); err != nil {
			return err
		}
	}
	r.Took = time.Since(began).Seconds()
	return nil
}

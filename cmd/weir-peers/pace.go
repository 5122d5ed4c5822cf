//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/cmd/internal/contest"
	"weir/cmd/internal/machine"
)

// paceWithin bounds a round of a rate, as a multiple of its time at that rate.
const paceWithin = 12

// keep measures how well each contender with a limiter keeps a rate: a backlog waits, and the api says when each job
// was called.
func (s *stage) keep(ctx context.Context, all []*contender, r *Report) error {
	for _, rate := range s.o.Rates {
		found := map[string]*Pace{}
		var order []*contender
		var names []string
		for _, c := range all {
			if c.pace == nil {
				continue
			}
			paced, err := c.pace(ctx, rate)
			if err != nil {
				r.leaveOut(c.name+", rate", err)
				continue
			}
			order, names = append(order, paced), append(names, c.name)
			found[c.name] = &Pace{Name: c.name, Rate: rate}
		}
		for round, i := range contest.Turns(s.o.Rounds, len(order)) {
			p := found[names[i]]
			if p == nil {
				continue
			}
			if err := s.paced(ctx, order[i], p); err != nil {
				if ctx.Err() != nil {
					return err
				}
				delete(found, names[i])
				r.leaveOut(fmt.Sprintf("%s, %d/s", names[i], rate), err)
				s.o.say("rate: %s at %d/s is out: %v", names[i], rate, err)
				continue
			}
			s.o.say("rate: %d/s, round %d of %d: %s: used %.1f %%, %d in the fullest second", rate, round+1, s.o.Rounds, names[i],
				100*p.Use.Each[len(p.Use.Each)-1], p.Fullest)
		}
		for _, name := range names {
			if p := found[name]; p != nil {
				p.Use.sum()
				r.Paces = append(r.Paces, p)
			}
		}
	}
	return nil
}

func (s *stage) paced(ctx context.Context, c *contender, p *Pace) error {
	length := time.Duration(s.o.Seconds) * time.Second * paceWithin
	ctx, cancel := context.WithTimeoutCause(ctx, length+roundWithin, fmt.Errorf("a round did not end within %v", length+roundWithin))
	defer cancel()
	jobs := p.Rate * s.o.Seconds
	held := machine.MeasureHeldUp()
	defer held.Stop()
	if err := c.all(ctx, "work"); err != nil {
		return err
	}
	called, err := s.round(ctx, c, jobs, 1, length)
	if err != nil {
		return errors.Join(err, c.all(ctx, "rest")) // its workers must not run beside the next contender
	}
	pause := held.Worst()
	if err := c.all(ctx, "rest"); err != nil {
		return err
	}
	slices.Sort(called.Times)
	first, last := called.FirstAndLast()
	p.Use.add(contest.PerSecond(jobs-1, last-first) / float64(p.Rate))
	p.Fullest = max(p.Fullest, contest.Fullest(called.Times, time.Second))
	p.Excused = max(p.Excused, contest.Fullest(called.Times, time.Second-pause))
	p.Pause = max(p.Pause, float64(pause)/float64(time.Millisecond))
	p.Repeated += called.Repeated
	return nil
}

//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// roundWithin bounds one round.
const roundWithin = 5 * time.Minute

// measure does one round of a contender's and adds what it found.
type measure func(ctx context.Context, s *stage, c *contender, jobs int, found *Found) error

// contest has each do a round in its turn, after a short one that does not count. Who begins changes from round to round. One that fails
// is out, unless nobody is left.
func (s *stage) contest(ctx context.Context, what string, all []*contender, do measure, r *Report) ([]*Found, error) {
	found := make([]*Found, len(all))
	out := make([]bool, len(all))
	for i, c := range all {
		found[i] = &Found{Name: c.name, Durability: c.durability, Durable: c.durable}
	}
	turn := func(i, jobs int, to *Found) error {
		ctx, cancel := context.WithTimeoutCause(ctx, roundWithin, fmt.Errorf("a round did not end within %v", roundWithin))
		defer cancel()
		err := do(ctx, s, all[i], jobs, to)
		if err != nil {
			out[i] = true
			r.leaveOut(all[i].name+", "+what, err)
			s.o.say("%s: %s is out: %v", what, all[i].name, err)
		}
		return ctx.Err()
	}
	for i := range all {
		s.o.say("%s: %s warms up", what, all[i].name)
		if err := turn(i, max(1, s.o.Jobs/10), &Found{}); err != nil {
			return nil, err
		}
	}
	for round := range s.o.Rounds {
		for t := range all {
			i := (round + t) % len(all)
			if out[i] {
				continue
			}
			if err := turn(i, s.o.Jobs, found[i]); err != nil {
				return nil, err
			}
			if !out[i] {
				s.o.say("%s: round %d of %d: %s: %s", what, round+1, s.o.Rounds, all[i].name, found[i].last())
			}
		}
	}
	var left []*Found
	for i := range all {
		if !out[i] {
			found[i].sum()
			left = append(left, found[i])
		}
	}
	return left, nil
}

// brought publishes jobs to the workers and waits until the api has had them all.
func brought(ctx context.Context, s *stage, c *contender, jobs int, found *Found) (err error) {
	if err := c.all(ctx, "work"); err != nil {
		return err
	}
	settle(ctx, c.counted())
	if err := s.judge.begin(ctx, c.path, jobs); err != nil {
		return err
	}
	before, producing := cpuOf(c.counted()), cpuOf([]*process{c.producer})
	published, err := c.producer.order(ctx, order{Do: "publish", Jobs: jobs, Keys: s.o.Keys, Body: s.o.Body, Queue: c.busy})
	if err != nil {
		return err
	}
	called, err := s.judge.end(ctx, jobs, roundWithin/2)
	if err != nil {
		return err
	}
	after := settle(ctx, c.counted())
	if err := c.all(ctx, "rest"); err != nil {
		return err
	}
	if called.Strays > 0 {
		return fmt.Errorf("%d calls came that were not of this round", called.Strays)
	}
	first, last := called.Times[0], called.Times[jobs-1]
	found.Jobs.add(persecond(jobs, last-published.Began))
	found.Calls.add(persecond(jobs-1, last-first))
	found.CPU.add(float64((after - before).Microseconds()) / float64(jobs))
	found.ProducerCPU.add(float64((cpuOf([]*process{c.producer}) - producing).Microseconds()) / float64(jobs))
	found.Repeated += called.Repeated
	return nil
}

// taken publishes jobs to where nobody works.
func taken(ctx context.Context, s *stage, c *contender, jobs int, found *Found) error {
	before, producing := settle(ctx, c.counted()), cpuOf([]*process{c.producer})
	published, err := c.producer.order(ctx, order{Do: "publish", Jobs: jobs, Keys: s.o.Keys, Body: s.o.Body, Queue: waiting})
	if err != nil {
		return err
	}
	found.Jobs.add(persecond(jobs, published.Took))
	found.CPU.add(float64((settle(ctx, c.counted()) - before).Microseconds()) / float64(jobs))
	found.ProducerCPU.add(float64((cpuOf([]*process{c.producer}) - producing).Microseconds()) / float64(jobs))
	return nil
}

func persecond(n int, took int64) float64 {
	return float64(n) / max(1e-9, time.Duration(took).Seconds())
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"weir/cmd/internal/contest"
)

// roundWithin bounds one round.
const roundWithin = 5 * time.Minute

// measure measures one round of a contender and adds the figures to found.
type measure func(ctx context.Context, s *stage, c *contender, jobs int, found *Found) error

// contest measures each contender in turn, round by round, after a short round that does not count. Each round begins
// with another contender. A contender that fails is left out of the rest; the others go on.
func (s *stage) contest(ctx context.Context, what string, all []*contender, do measure, r *Report) ([]*Found, error) {
	found := make([]*Found, len(all))
	out := make([]bool, len(all))
	for i, c := range all {
		found[i] = &Found{Name: c.name, Peer: c.peer, Durability: c.durability, Durable: c.durable}
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
	for round, i := range contest.Turns(s.o.Rounds, len(all)) {
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
	var left []*Found
	for i := range all {
		if !out[i] {
			found[i].sum()
			left = append(left, found[i])
		}
	}
	return left, nil
}

// brought measures jobs from the producer to the api.
func brought(ctx context.Context, s *stage, c *contender, jobs int, found *Found) (err error) {
	if err := c.all(ctx, "work"); err != nil {
		return err
	}
	settle(ctx, c.counted())
	before, producing := cpuOf(c.counted()...), cpuOf(c.producer.PID())
	called, err := s.round(ctx, c, jobs, s.o.Keys, roundWithin/2)
	if err != nil {
		return errors.Join(err, c.all(ctx, "rest")) // its workers must not run beside the next contender
	}
	after := settle(ctx, c.counted())
	if err := c.all(ctx, "rest"); err != nil {
		return err
	}
	first, last := called.FirstAndLast()
	found.Jobs.add(contest.PerSecond(jobs, last-called.Began))
	found.Calls.add(contest.PerSecond(jobs-1, last-first))
	found.CPU.add(float64((after - before).Microseconds()) / float64(jobs))
	found.ProducerCPU.add(float64((cpuOf(c.producer.PID()) - producing).Microseconds()) / float64(jobs))
	found.Repeated += called.Repeated
	return nil
}

// round publishes jobs and waits until the api was called for each.
func (s *stage) round(ctx context.Context, c *contender, jobs, keys int, within time.Duration) (contest.Calls, error) {
	return s.judge.Round(ctx, c.path, jobs, within, func(ctx context.Context) (int64, error) {
		published, err := c.producer.Order(ctx, contest.Order{Do: "publish", Jobs: jobs, Keys: keys, Body: s.o.Body, Queue: c.busy})
		return published.Began, err
	})
}

// taken publishes jobs to a queue that no worker reads.
func taken(ctx context.Context, s *stage, c *contender, jobs int, found *Found) error {
	before, producing := settle(ctx, c.counted()), cpuOf(c.producer.PID())
	published, err := c.producer.Order(ctx, contest.Order{Do: "publish", Jobs: jobs, Keys: s.o.Keys, Body: s.o.Body, Queue: contest.Waiting})
	if err != nil {
		return err
	}
	found.Jobs.add(contest.PerSecond(jobs, published.Took))
	found.CPU.add(float64((settle(ctx, c.counted()) - before).Microseconds()) / float64(jobs))
	found.ProducerCPU.add(float64((cpuOf(c.producer.PID()) - producing).Microseconds()) / float64(jobs))
	return nil
}

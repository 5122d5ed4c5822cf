package bench

import (
	"context"
	"fmt"
	"time"

	"weir/cmd/internal/contest"
	"weir/cmd/weir/internal/cli"
)

// contestant is one program that is measured. run does the jobs of a round and returns the round's figure.
type contestant struct {
	name string
	pids []int // ids of the processes whose CPU time is counted; empty if unknown
	run  func(ctx context.Context, jobs int) (figure float64, err error)
}

// contest runs the rounds of the contestants in turns. Before that, each contestant runs one short round that does not
// count.
func (s *stage) contest(ctx context.Context, unit string, all []contestant) ([]Contender, error) {
	turn := func(i, jobs int) (float64, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, within, errTooLong)
		defer cancel()
		figure, err := all[i].run(ctx, jobs)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", all[i].name, err)
		}
		return figure, nil
	}
	for i := range all {
		if _, err := turn(i, max(1, s.o.Jobs/10)); err != nil {
			return nil, err
		}
	}
	found := make([]Contender, len(all))
	used := make([][]float64, len(all))
	bar := cli.NewProgressBar(s.o.Talk, "rounds", s.o.Rounds*len(all))
	defer bar.Clear()
	done := 0
	for _, i := range contest.Turns(s.o.Rounds, len(all)) {
		bar.Show(done)
		done++
		before, known := contest.CPU(all[i].pids...)
		figure, err := turn(i, s.o.Jobs)
		if err != nil {
			return nil, err
		}
		found[i].Each = append(found[i].Each, figure)
		if after, ok := contest.CPU(all[i].pids...); ok && known {
			used[i] = append(used[i], float64((after-before).Microseconds())/float64(s.o.Jobs))
		}
	}
	for i, c := range all {
		found[i].Name, found[i].Unit, found[i].Figure = c.name, unit, contest.SpreadOf(found[i].Each)
		if len(used[i]) > 0 {
			cpu := contest.SpreadOf(used[i])
			found[i].CPU = &cpu
		}
	}
	return found, nil
}

// within bounds one round.
const within = 10 * time.Minute

var errTooLong = fmt.Errorf("a round did not end within %v", within)

// load returns the order that makes a producer publish a round's jobs into a queue.
func (s *stage) load(queue string, jobs, keys int) contest.Order {
	return contest.Order{Do: "publish", Queue: queue, Jobs: jobs, Keys: keys, Body: s.o.Body}
}

// taken returns a function that measures how many jobs a second a queue accepts. It measures from the producer's first
// publish to its last receipt.
func (s *stage) taken(producer *contest.Role, queue string) func(context.Context, int) (float64, error) {
	return func(ctx context.Context, jobs int) (float64, error) {
		published, err := producer.Order(ctx, s.load(queue, jobs, s.o.Keys))
		return contest.PerSecond(jobs, published.Took), err
	}
}

// busyKeys is the most keys that the jobs of a round have if the jobs are called.
const busyKeys = 1000

// reached returns a function that measures how many jobs a second reach the API. It measures from the producer's first
// publish to the call of the last job.
func (s *stage) reached(producer *contest.Role, queue, path string) func(context.Context, int) (float64, error) {
	return func(ctx context.Context, jobs int) (float64, error) {
		calls, err := s.calls(ctx, producer, path, s.load(queue, jobs, min(s.o.Keys, busyKeys)))
		if err != nil {
			return 0, err
		}
		_, last := calls.FirstAndLast()
		return contest.PerSecond(jobs, last-calls.Began), nil
	}
}

// calls makes a producer publish jobs, and returns when each call reached the API.
func (s *stage) calls(ctx context.Context, producer *contest.Role, path string, o contest.Order) (contest.Calls, error) {
	return s.api.Round(ctx, path, o.Jobs, within, func(ctx context.Context) (int64, error) {
		published, err := producer.Order(ctx, o)
		return published.Began, err
	})
}

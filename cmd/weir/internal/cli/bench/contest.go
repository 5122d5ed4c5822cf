package bench

import (
	"context"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
)

// contestant does a round's jobs.
type contestant struct {
	name string
	pids []int // of the processes whose CPU counts; none: it is not known
	run  func(ctx context.Context, jobs int) (figure float64, err error)
}

// contest runs the contenders' rounds in turn, after a short round that does not count. Another contender begins each
// round.
func (s *stage) contest(ctx context.Context, unit string, all []contestant) ([]Contender, error) {
	for _, c := range all {
		if _, err := c.run(ctx, max(1, s.o.Jobs/10)); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	found := make([]Contender, len(all))
	used := make([][]float64, len(all))
	bar := cli.NewProgressBar(s.o.Talk, "rounds", s.o.Rounds*len(all))
	defer bar.Clear()
	for round := range s.o.Rounds {
		for turn := range all {
			bar.Show(round*len(all) + turn)
			i := (round + turn) % len(all)
			before, known := cpuOfAll(all[i].pids)
			figure, err := all[i].run(ctx, s.o.Jobs)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			found[i].Each = append(found[i].Each, figure)
			if after, ok := cpuOfAll(all[i].pids); ok && known {
				used[i] = append(used[i], float64((after-before).Microseconds())/float64(s.o.Jobs))
			}
		}
	}
	for i, c := range all {
		found[i].Name, found[i].Unit, found[i].Figure = c.name, unit, spread(found[i].Each)
		if len(used[i]) > 0 {
			cpu := spread(used[i])
			found[i].CPU = &cpu
		}
	}
	return found, nil
}

func cpuOfAll(pids []int) (sum time.Duration, ok bool) {
	for _, pid := range pids {
		used, ok := cpuOf(pid)
		if !ok {
			return 0, false
		}
		sum += used
	}
	return sum, len(pids) > 0
}

// within bounds one round.
const within = 10 * time.Minute

// timed is how many jobs a second do makes, from its begin to its return.
func timed(ctx context.Context, jobs int, do func(ctx context.Context) error) (float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("a round did not end within %v", within))
	defer cancel()
	began := time.Now()
	if err := do(ctx); err != nil {
		return 0, err
	}
	return float64(jobs) / time.Since(began).Seconds(), nil
}

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"weir/cmd/internal/machine"
)

// fewKeys wait in the measurement that many waiting keys are held against.
const fewKeys = 1000

// keys is what a call costs while many keys wait, beside the same while a thousand do, and what a waiting key takes of weir's memory. The
// server is in a process of its own, so that the memory is weir's.
func keys(ctx context.Context, s *stage, r *Report) error {
	if s.o.Server == Inside {
		s.o.Server = Beside
	}
	if err := s.serve(ctx, waitingAPI+busyAPIs[len("apis:\n"):]); err != nil {
		return err
	}
	if err := s.pause(ctx, "waiting"); err != nil {
		return err
	}
	loop, err := newBareLoop(ctx, s.js, s.sink.url)
	if err != nil {
		return err
	}
	stop, err := loop.run(ctx)
	if err != nil {
		return err
	}
	s.later(func() error { stop(); return nil })

	few := min(fewKeys, s.o.Keys)
	if err := s.fill(ctx, few); err != nil {
		return err
	}
	beside := func(n int) ([]Contender, error) {
		return s.contest(ctx, "jobs/s", []contestant{
			{fmt.Sprintf("weir, %d keys waiting", n), s.pids[:1], s.called("weir.jobs.idempotent", s.js)},
			{fmt.Sprintf("bare, %d keys waiting", n), nil, s.called(bareSubject, s.js)},
		})
	}
	little, err := beside(few)
	if err != nil {
		return err
	}
	before, _ := residentOf(s.pids[0])
	if err := s.fill(ctx, s.o.Keys); err != nil {
		return err
	}
	much, err := beside(s.o.Keys)
	if err != nil {
		return err
	}
	if after, ok := residentOf(s.pids[0]); ok {
		much[0].Also = []Also{
			{"memory of weir", "MiB", float64(after) / (1 << 20)},
			{"memory of a waiting key", "bytes", float64(after-before) / float64(s.o.Keys)},
		}
	}
	r.Contenders = append(little, much...)
	r.Ratios = []Ratio{ratio(little[0], little[1]), ratio(much[0], much[1]), ratio(much[0], little[0])}
	if few, many := little[0].CPU, much[0].CPU; few != nil && many != nil && few.Median > 0 {
		by := many.Median / few.Median
		r.Ratios = append(r.Ratios, Ratio{"CPU of a call, " + much[0].Name + " / " + little[0].Name, Spread{by, by, by}})
	}
	return nil
}

// fill has so many keys wait, each with one job more.
func (s *stage) fill(ctx context.Context, keys int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%d jobs were not taken within %v", keys, within))
	defer cancel()
	return load{subject: "weir.jobs.waiting", jobs: keys, keys: keys, body: s.o.Body}.publish(ctx, s.js)
}

// pause has weir call nothing of an api.
func (s *stage) pause(ctx context.Context, api string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the weir binary: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "pause", api)
	cmd.Env = append(machine.PlainEnv(), "WEIR_NATS_URL="+s.nc.ConnectedUrl())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pause %s: %w: %s", api, err, out)
	}
	return nil
}

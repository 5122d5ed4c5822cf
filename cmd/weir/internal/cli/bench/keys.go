package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"weir/cmd/internal/contest"
	"weir/cmd/internal/machine"
)

// fewKeys is how many keys wait in the first rounds. The rounds in which many keys wait are compared with these.
const fewKeys = 1000

// keys measures what a call costs while many keys wait and while a thousand keys wait. It also measures the memory of a
// waiting key. The server runs in a process of its own, so the memory of weir's process has nothing of the server.
func keys(ctx context.Context, s *stage, r *Report) error {
	if s.o.Server == Inside {
		s.o.Server = Beside
	}
	w, err := s.serve(ctx, "weir", waitingAPI+busyAPIs[len("apis:\n"):])
	if err != nil {
		return err
	}
	if err := pause(ctx, w.url, "waiting"); err != nil {
		return err
	}
	bare, err := s.loop(ctx, reference{url: w.url})
	if err != nil {
		return err
	}
	fill := func(keys int) error { // adds one waiting job to each key
		ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%d jobs were not taken within %v", keys, within))
		defer cancel()
		_, err := w.producer.Order(ctx, s.load("waiting", keys, keys))
		return err
	}
	few := min(fewKeys, s.o.Keys)
	if err := fill(few); err != nil {
		return err
	}
	beside := func(n int) ([]Contender, error) {
		return s.contest(ctx, "jobs/s", []contestant{
			{fmt.Sprintf("weir, %d keys waiting", n), w.pids[:1], s.reached(w.producer, "idempotent", "/idempotent")},
			{fmt.Sprintf("bare, %d keys waiting", n), nil, bare.run},
		})
	}
	little, err := beside(few)
	if err != nil {
		return err
	}
	before, _ := residentOf(w.pids[0])
	if err := fill(s.o.Keys); err != nil {
		return err
	}
	much, err := beside(s.o.Keys)
	if err != nil {
		return err
	}
	if after, ok := residentOf(w.pids[0]); ok {
		much[0].Also = []Also{
			{"memory of weir", "MiB", float64(after) / (1 << 20)},
			{"memory of a waiting key", "bytes", float64(after-before) / float64(s.o.Keys)},
		}
	}
	r.Contenders = append(little, much...)
	r.Ratios = []Ratio{ratio(little[0], little[1]), ratio(much[0], much[1]), ratio(much[0], little[0])}
	if few, many := little[0].CPU, much[0].CPU; few != nil && many != nil && few.Median > 0 {
		by := many.Median / few.Median
		r.Ratios = append(r.Ratios, Ratio{"CPU of a call, " + much[0].Name + " / " + little[0].Name, contest.Spread{Median: by, Least: by, Most: by}})
	}
	return nil
}

// pause makes weir pause an api.
func pause(ctx context.Context, url, api string) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the weir binary: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "pause", api)
	cmd.Env = append(machine.PlainEnv(), "WEIR_NATS_URL="+url)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pause %s: %w: %s", api, err, out)
	}
	return nil
}

// residentOf returns the resident bytes of a process. ok is false if the system does not tell.
func residentOf(pid int) (size int64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}

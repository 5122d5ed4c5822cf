package bench

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"weir/cmd/internal/contest"
	"weir/cmd/weir/internal/cli"
)

// fleet measures fleets of several sizes on one NATS cluster and one Redis: how many jobs a second reach an API that
// answers at once, what they take of each group of processes, and how long the keys of a replica wait that is killed.
// Beside them it measures a bare loop that reads a stream with as many copies, while no replica runs.
func fleet(ctx context.Context, s *stage, r *Report) error {
	f, err := s.fleetStage(ctx, slices.Max(s.o.Replicas))
	if err != nil {
		return err
	}
	bare, err := f.bare(ctx)
	if err != nil {
		return err
	}
	all := []*entrant{bare}
	for _, n := range s.o.Replicas {
		all = append(all, f.entrant(n))
	}
	bar := cli.NewProgressBar(s.o.Talk, "rounds", s.o.Rounds*len(all))
	defer bar.Clear()
	done := 0
	for _, i := range contest.Turns(s.o.Rounds, len(all)) {
		bar.Show(done)
		done++
		if err := f.turn(ctx, all[i]); err != nil {
			return fmt.Errorf("%s: %w", all[i].name, err)
		}
	}
	for _, e := range all {
		r.Contenders = append(r.Contenders, e.contender())
	}
	for _, weir := range r.Contenders[1:] {
		r.Ratios = append(r.Ratios, ratio(weir, r.Contenders[0]))
	}
	for i := 2; i < len(r.Contenders); i++ {
		r.Ratios = append(r.Ratios, ratio(r.Contenders[i], r.Contenders[1]))
	}
	return nil
}

// entrant is a fleet of one size, or the bare loop.
type entrant struct {
	name    string
	size    int // running replicas; 0 for the bare loop
	callers func() []int
	calls   func(ctx context.Context, jobs int) (perSecond float64, err error)
	rest    func(ctx context.Context) error // stops the bare loop; nil: nothing to stop

	each  []float64 // calls a second of each round
	cpu   []float64 // of all processes but the producer, in µs a job, of each round
	also  [][]Also  // of each round
	waits []float64 // of the keys of all replicas that were killed, in seconds
	kills int
}

// fleetName names a fleet of n replicas.
func fleetName(n int) string {
	if n == 1 {
		return "1 replica"
	}
	return strconv.Itoa(n) + " replicas"
}

// entrant returns the entrant of n replicas.
func (f *fleetStage) entrant(n int) *entrant {
	return &entrant{
		name: fleetName(n), size: n, calls: f.reached(f.producer, "busy", "/busy"),
		callers: func() (pids []int) {
			for _, r := range f.replicas[:n] {
				pids = append(pids, r.PID())
			}
			return pids
		},
	}
}

// bare starts the bare loop and a producer for it.
func (f *fleetStage) bare(ctx context.Context) (*entrant, error) {
	worker, err := f.Role(ctx, "nats", contest.Settings{
		Store: f.cluster.URL, API: f.api.URL + barePath, AtOnce: callsAtOnce, Copies: fleetNodes, Worker: true,
	})
	if err != nil {
		return nil, err
	}
	producer, err := f.Role(ctx, "nats", contest.Settings{Store: f.cluster.URL, Queue: contest.BareSubject})
	if err != nil {
		return nil, err
	}
	reached, working := f.reached(producer, contest.Busy, barePath), false
	return &entrant{
		name: "bare loop", callers: func() []int { return []int{worker.PID()} },
		calls: func(ctx context.Context, jobs int) (float64, error) {
			if !working {
				if _, err := worker.Order(ctx, contest.Order{Do: "work"}); err != nil {
					return 0, err
				}
				working = true
			}
			return reached(ctx, jobs)
		},
		rest: func(ctx context.Context) error {
			working = false
			_, err := worker.Order(ctx, contest.Order{Do: "rest"})
			return err
		},
	}, nil
}

// A fleet goes on writing and deleting for some time after its last job. It is left alone for settleFor, and then watched
// for idleFor at a time until it sends no fewer messages than before, at most idleLooks times.
const (
	settleFor = 15 * time.Second
	idleFor   = 3 * time.Second
	idleLooks = 15
)

// turn runs one round of an entrant: the fleet gets its size, runs a short round that does not count, is watched
// without jobs, runs the round, and loses a replica.
func (f *fleetStage) turn(ctx context.Context, e *entrant) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, errTooLong)
	defer cancel()
	if err := f.resize(ctx, e.size); err != nil {
		return err
	}
	if _, err := e.calls(ctx, max(1, f.o.Jobs/10)); err != nil {
		return err
	}
	var also []Also
	if e.size > 0 {
		idle, err := f.idle(ctx, e)
		if err != nil {
			return err
		}
		also = append(also, idle.each("idle, ", " a second", idleFor.Seconds())...)
	}
	busy, err := f.spent(ctx, e, func() error {
		perSecond, err := e.calls(ctx, f.o.Jobs)
		e.each = append(e.each, perSecond)
		return err
	})
	if err != nil {
		return err
	}
	if cpu := busy.cpu(); !math.IsNaN(cpu) {
		e.cpu = append(e.cpu, cpu/float64(f.o.Jobs))
	}
	e.also = append(e.also, append(busy.each("", " a job", float64(f.o.Jobs)), also...))
	if e.size > 1 {
		waits, err := f.takeover(ctx)
		if err != nil {
			return fmt.Errorf("the takeover: %w", err)
		}
		e.waits, e.kills = append(e.waits, waits...), e.kills+1
	}
	if e.rest != nil {
		return e.rest(ctx)
	}
	return nil
}

// idle waits until a fleet has nothing left to do, and returns what it spends then in idleFor.
func (f *fleetStage) idle(ctx context.Context, e *entrant) (spent, error) {
	if err := rest(ctx, settleFor); err != nil {
		return nil, err
	}
	last := math.Inf(1)
	for look := 1; ; look++ {
		idle, err := f.spent(ctx, e, func() error { return rest(ctx, idleFor) })
		if err != nil {
			return nil, err
		}
		now := idle.messages()
		if now >= 0.8*last || look == idleLooks {
			return idle, nil
		}
		last = now
	}
}

// rest waits, and fails if ctx ends first.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// spent is what each group of processes has spent. A figure that the system does not tell is NaN.
type spent []Also

// The units of processor time and of messages.
const (
	cpuUnit     = "µs"
	messageUnit = "messages"
)

// cpu returns the processor time of all groups in µs.
func (s spent) cpu() (sum float64) {
	for _, x := range s {
		if x.Unit == cpuUnit {
			sum += x.Figure
		}
	}
	return sum
}

// messages returns the number of messages that NATS had from and to clients, and between its servers.
func (s spent) messages() (sum float64) {
	for _, x := range s {
		if x.Unit == messageUnit {
			sum += x.Figure
		}
	}
	return sum
}

// each divides the known figures by n, and completes their names and units.
func (s spent) each(prefix, unit string, n float64) (all []Also) {
	for _, x := range s {
		if !math.IsNaN(x.Figure) {
			all = append(all, Also{prefix + x.Name, x.Unit + unit, x.Figure / n})
		}
	}
	return all
}

// spent returns what an entrant and its servers spend while during runs.
func (f *fleetStage) spent(ctx context.Context, e *entrant, during func() error) (spent, error) {
	before, err := f.account(ctx, e)
	if err != nil {
		return nil, err
	}
	if err := during(); err != nil {
		return nil, err
	}
	after, err := f.account(ctx, e)
	for i := range after {
		after[i].Figure -= before[i].Figure
	}
	return after, err
}

// account returns what an entrant and its servers have spent since they started.
func (f *fleetStage) account(ctx context.Context, e *entrant) (spent, error) {
	messages, err := f.cluster.Messages(ctx)
	if err != nil {
		return nil, err
	}
	commands, err := f.redis.Commands(ctx)
	if err != nil {
		return nil, err
	}
	cpu := func(pids []int) float64 {
		used, ok := contest.CPU(pids...)
		if !ok {
			return math.NaN()
		}
		return float64(used.Microseconds())
	}
	return spent{
		{"CPU of the callers", cpuUnit, cpu(e.callers())},
		{"CPU of NATS", cpuUnit, cpu(f.cluster.PIDs())},
		{"CPU of Redis", cpuUnit, cpu([]int{f.redis.PID()})},
		{"CPU of the api", cpuUnit, cpu([]int{f.api.PID})},
		{"NATS, from and to clients", messageUnit, float64(messages.Clients)},
		{"NATS, between servers", messageUnit, float64(messages.Between)},
		{"Redis, scripts", "runs", float64(commands.Scripts)},
		{"Redis, all commands", "commands", float64(commands.All)},
	}, nil
}

// contender sums up an entrant's rounds.
func (e *entrant) contender() Contender {
	c := Contender{Name: e.name, Unit: "jobs/s", Each: e.each, Figure: contest.SpreadOf(e.each)}
	if len(e.cpu) > 0 {
		cpu := contest.SpreadOf(e.cpu)
		c.CPU = &cpu
	}
	for i, x := range e.also[0] { // each round has the same figures
		figures := make([]float64, len(e.also))
		for round, also := range e.also {
			figures[round] = also[i].Figure
		}
		c.Also = append(c.Also, Also{x.Name, x.Unit, contest.SpreadOf(figures).Median})
	}
	if waits := contest.SpreadOf(e.waits); e.kills > 0 {
		c.Also = append(c.Also, Also{"takeover, median key", "s", waits.Median}, Also{"takeover, worst key", "s", waits.Most})
	}
	return c
}

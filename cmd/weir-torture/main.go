// Command weir-torture runs weir on this machine under the faults of a bad month, and judges it by the ledger of the
// api that it calls.
package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"weir/bucket/fault"
	"weir/cmd/internal/machine"
	"weir/cmd/weir-torture/internal/plan"
	"weir/cmd/weir-torture/internal/torture"
)

// The exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

// mostPlans bounds --plans.
const mostPlans = 10_000

// wrongUsage is an error in the command line.
type wrongUsage struct{ error }

func (w wrongUsage) Unwrap() error { return w.error }

func usage(err error) error { return wrongUsage{err} }

func main() {
	started := false
	cmd := command()
	cmd.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	err := cmd.ExecuteContext(context.Background())
	if err == nil {
		return
	}
	_, _ = fmt.Fprintln(os.Stderr, "weir-torture: "+err.Error())
	var wrong wrongUsage
	if errors.As(err, &wrong) || !started { // cobra has refused the arguments
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

// flags are the flags that are not options of a run.
type flags struct {
	points                  []string
	weir, bug, server, keep string
	json                    bool
	plans                   int
}

func command() *cobra.Command {
	o := plan.Options{Attributes: machine.ChildAttributes}
	var given flags
	cmd := &cobra.Command{
		Use:           "weir-torture",
		Short:         "Kill, stop, cut off and fill up weir on this machine, and judge it by the api's own ledger",
		SilenceErrors: true,
		SilenceUsage:  true,
		Long: `Runs weir, a nats-server and a fake paid api as processes of their own and does to them what a bad month does: kill -9
of weir and of the server, SIGSTOP longer than timeouts, connections to the api slow and cut, a full disk, a second weir
that takes over while the first is stopped. It changes the configuration meanwhile, also right before a kill -9, kills weir while
nothing is queued, and has it run with little memory. Producers go on publishing and write their receipts down. Then what is queued
is called, and the api's ledger is held against the receipts.

With --replicas 2 or more it runs a fleet: three NATS nodes in a cluster with three copies of every stream, a Redis that syncs
every write, and replicas that are killed, stopped for longer than their lease, restarted one after the other, and cut off
from NATS, from Redis or from the api; nodes are killed, restarted and cut off from each other, Redis is killed and robbed of
its file, or gets an older one back. The power of all nodes is cut while one of them rewrites a block: each has an ext4 of its own, and
what it had not synced is lost. Bytes of a node's store are flipped, a node is restarted after hundreds of deletions, and a stream is
scaled to one copy and back. A cut of a link is a pulled cable: no byte passes and nothing is closed, and when it is over what was held
up arrives late or is lost. Beside the rest, a fleet is judged by what it shares: the limits of all keys together, and the work.

With --priorities, --callbacks, --operations, --reuse, --settled or --pack weir runs with that feature, and what the feature promises is
judged too.

With the same --seed the plan of faults is the same. It tortures the program weir beside it, or that of --weir. An ordinary build
of weir is killed at random; where both are built with -tags torture, as 'make torture' does, also at chosen points between every two
durable steps (--at), and weir can be given bugs that the verdict must catch (--planted). A full disk and a power cut of a fleet
need the right to mount a file system. Without it, a note says so: the full disk is left out, and the nodes are killed.

With --plans it runs so many plans, one after the other, and prints a table with a line for each seed.

Exit code: 0 every promise was kept, 1 one was not, or the run failed, 2 wrong usage.`,
		Example: "  weir-torture\n  weir-torture --replicas 3 --worker-kills 30 --cut-nats 20\n  weir-torture --seed 7 --worker-kills 300 --server-kills 100 --idempotent\n  weir-torture --replicas 3 --seed 1 --plans 50\n  make torture SEED=7 ARGS='--at result-stored --worker-kills 20'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cmd.SetContext(ctx)
			return given.run(cmd, o)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage(err) })
	given.add(cmd, &o)
	return cmd
}

func (g *flags) add(cmd *cobra.Command, o *plan.Options) {
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 0, "of the plan of faults (default: any)")
	f.StringVar(&g.server, "server", string(plan.External), "external: a nats-server of its own; embedded: in weir")
	f.StringVar(&o.Auth, "auth", "operators", "open, operators or required: which clients the server inside weir admits (WEIR_NATS_AUTH)")
	f.BoolVar(&o.Idempotent, "idempotent", false, "the api takes idempotency keys")
	f.IntVar(&o.Replicas, "replicas", 1, "of weir; 2 to 4 are a fleet, with three NATS nodes and a Redis (redis-server must be installed)")
	for _, c := range o.Counts() {
		f.IntVar(c.N, c.Option, c.Alone, usageOf(c))
	}
	f.IntVar(&o.Pack, "pack", 0, "jobs that a call may have (default: one)")
	f.BoolVar(&o.Priorities, "priorities", false, "jobs are high, normal and low in turn")
	f.BoolVar(&o.Callbacks, "callbacks", false, "weir posts the ends of jobs to a receiver, which refuses some posts")
	f.BoolVar(&o.Operations, "operations", false, "the api answers calls with 202 and goes on working, and weir polls it")
	f.BoolVar(&o.Reuse, "reuse", false, "jobs of a key ask the same, and weir gives answers again")
	f.BoolVar(&o.Settled, "settled", false, "only answers say what calls take of a limit in tokens and cost; estimates are too high or too low")
	f.IntVar(&o.Rate, "rate", 20, "calls a second of a key")
	f.IntVar(&o.Account, "account", 0, "calls a second of all keys together; if fewer than --jobs, jobs wait (default: more than --jobs)")
	f.IntVar(&o.Quota, "quota", 0, "of a fleet: calls in any twenty seconds of all keys together; if fewer than twenty times --jobs, jobs wait (default: any number)")
	f.IntVar(&o.Keys, "keys", 6, "steady keys (default of a fleet: 24)")
	f.IntVar(&o.Jobs, "jobs", 40, "jobs a second, over the steady keys (default of a fleet: 24)")
	f.DurationVar(&o.Duration, "duration", 0, "start no new fault after this long (default: do all)")
	f.StringVar(&o.Durability, "durability", "always", "always or interval: when the server syncs")
	f.StringArrayVar(&g.points, "at", nil, "kill only at this point; may be repeated (-tags torture)")
	f.StringVar(&g.bug, "planted", "", "plant this bug (-tags torture)")
	f.StringVar(&g.keep, "dir", "", "keep ledger, receipts, logs and store here (default: a temporary directory, kept when a promise broke)")
	f.StringArrayVar(&o.Settings, "change", nil, "change only this of the configuration; may be repeated: "+strings.Join(plan.Settings(), ", "))
	f.BoolVar(&o.Reloads, "reloads", false, "some configuration changes come by SIGHUP, for a weir that reads its file again then")
	f.StringVar(&g.weir, "weir", "", "the program to torture (default: weir beside this program)")
	f.BoolVar(&g.json, "json", false, "the figures as one JSON object")
	f.IntVar(&g.plans, "plans", 1, "run this many plans one after the other, with the seeds from --seed on, and print a line for each")
}

// run completes the options, tortures weir, and prints the verdict.
func (g *flags) run(cmd *cobra.Command, o plan.Options) (err error) {
	if o.Binary, err = weirProgram(g.weir); err != nil {
		return usage(err)
	}
	o.Server, o.Bug, o.Talk = plan.Server(g.server), fault.Bug(g.bug), cmd.ErrOrStderr()
	o.Hooked = fault.Built && hooked(o.Binary)
	for _, p := range g.points {
		o.Points = append(o.Points, fault.Point(p))
	}
	if !cmd.Flags().Changed("seed") {
		o.Seed = rand.Uint64N(1_000_000)
	}
	switch {
	case o.Replicas > 1:
		asFleet(cmd, &o)
	case g.server == string(plan.Embedded):
		withoutServer(cmd, &o)
	}
	if o.Restores > 0 {
		leaveOut(cmd, map[string]*int{"config-changes": &o.ConfigChanges, "idle-kills": &o.IdleKills})
	}
	if o.Settled {
		leaveOut(cmd, map[string]*int{"config-changes": &o.ConfigChanges, "idle-kills": &o.IdleKills, "memory-limits": &o.MemoryLimits})
	}
	if err := o.Validate(); err != nil {
		return usage(err)
	}
	if g.plans < 1 || g.plans > mostPlans {
		return usage(fmt.Errorf("--plans must be from 1 to %d", mostPlans))
	}
	if !o.Hooked {
		_, _ = fmt.Fprintln(o.Talk, "weir-torture: it kills at random only: chosen points and planted bugs need a weir and a weir-torture with -tags torture (make torture)")
	}
	return g.torment(cmd, o)
}

// weirProgram returns the absolute path of the program under torture. The default is weir beside this program.
func weirProgram(path string) (string, error) {
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find the program weir: %w", err)
		}
		path = filepath.Join(filepath.Dir(self), "weir")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("--weir: %w", err)
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return "", fmt.Errorf("there is no program %s: build weir (make torture), or name it with --weir", path)
	}
	return path, nil
}

// hooked reports whether a program was built with -tags torture, and so can be killed at chosen points.
func hooked(program string) bool {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
		return s.Key == "-tags" && slices.Contains(strings.Split(s.Value, ","), "torture")
	})
}

// withoutServer sets the faults that need an external server to zero, unless they were requested.
func withoutServer(cmd *cobra.Command, o *plan.Options) {
	leaveOut(cmd, map[string]*int{"server-kills": &o.ServerKills, "takeovers": &o.Takeovers})
}

// leaveOut sets counts of faults to zero unless they were requested.
func leaveOut(cmd *cobra.Command, faults map[string]*int) {
	for name, n := range faults {
		if !cmd.Flags().Changed(name) {
			*n = 0
		}
	}
}

// asFleet sets the defaults of a fleet, except for flags that were given.
func asFleet(cmd *cobra.Command, o *plan.Options) {
	for _, c := range o.Counts() {
		if !cmd.Flags().Changed(c.Option) {
			*c.N = c.InFleet
		}
	}
	for name, usual := range map[string]struct {
		n     *int
		value int
	}{"keys": {&o.Keys, 24}, "jobs": {&o.Jobs, 24}} {
		if !cmd.Flags().Changed(name) {
			*usual.n = usual.value
		}
	}
}

// usageOf describes a count of faults and its default for a fleet. cobra adds the default for a single weir.
func usageOf(c plan.Count) string {
	if c.Alone == c.InFleet {
		return c.Usage
	}
	return fmt.Sprintf("%s (default of a fleet: %d)", c.Usage, c.InFleet)
}

func (g *flags) torment(cmd *cobra.Command, o plan.Options) (err error) {
	if g.plans > 1 {
		return g.inARow(cmd, o)
	}
	if o.Dir, err = tortureDir(g.keep); err != nil {
		return err
	}
	start := time.Now()
	r, err := torture.Run(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("%w\nafter %v; logs are in %s", err, time.Since(start).Round(time.Second), o.Dir)
	}
	if g.json {
		err = json.NewEncoder(cmd.OutOrStdout()).Encode(r)
	} else {
		err = r.Print(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return err
	case !r.Kept():
		return fmt.Errorf("a promise was broken; ledger, receipts and logs are in %s", o.Dir)
	case g.keep == "":
		return os.RemoveAll(o.Dir)
	}
	return nil
}

// tortureDir makes the directory of a run. It fails if the directory is not empty.
func tortureDir(dir string) (string, error) {
	if dir == "" {
		made, err := os.MkdirTemp("", "weir-torture-")
		if err != nil {
			return "", fmt.Errorf("make a directory: %w", err)
		}
		return made, nil
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	}
	if there, err := os.ReadDir(dir); err != nil {
		return "", fmt.Errorf("--dir: %w", err)
	} else if len(there) > 0 {
		return "", usage(errors.New("--dir is not empty: the ledger of another run would be continued"))
	}
	return dir, nil
}

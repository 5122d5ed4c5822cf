package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"weir/bucket/fault"
	"weir/cmd/weir/internal/torture"
)

func tortureCommand() *cobra.Command {
	o := torture.Options{Attributes: childAttributes}
	var points []string
	bug, server, as, keep := "", "", forPeople, ""
	cmd := &cobra.Command{
		Use:   "torture",
		Short: "Kill, stop, cut off and fill up weir on this machine, and judge it by the api's own ledger",
		Long: `Runs weir, a nats-server and a fake paid api as processes of their own and does to them what a bad month does: kill -9
of weir and of the server, SIGSTOP longer than timeouts, connections to the api slow and cut, a full disk, a second weir
that takes over while the first is stopped. Producers go on publishing and write their receipts down. Then what is queued
is called, and the api's ledger is held against the receipts.

With --replicas 2 or more it runs a fleet: three NATS nodes in a cluster with three copies of every stream, a Redis that syncs
every write, and replicas that are killed, stopped for longer than their lease, restarted one after the other, and cut off
from NATS, from Redis or from the api; nodes are killed, restarted and cut off from each other, Redis is killed and robbed of
its file. A cut is a pulled cable: no byte passes and nothing is closed, and when it is over what was held up arrives late or is
lost. Beside the rest, a fleet is judged by what it shares: the limits of all keys together, and the work.

With the same --seed the plan of faults is the same. An ordinary build kills at random; one with -tags torture, which
'make torture' makes, also at chosen points between every two durable steps (--at), and can be given bugs that the verdict
must catch (--planted). A full disk needs the right to mount a small one, and is left out with a note without it.

Exit code: 0 every promise was kept, 1 one was not, or the run failed.`,
		Example: "  weir torture\n  weir torture --replicas 3 --worker-kills 30 --cut-nats 20\n  weir torture --seed 7 --worker-kills 300 --server-kills 100 --idempotent\n  make torture SEED=7 ARGS='--at result-stored --worker-kills 20'",
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.Server, o.Bug, o.Talk = torture.Server(server), fault.Bug(bug), cmd.ErrOrStderr()
			for _, p := range points {
				o.Points = append(o.Points, fault.Point(p))
			}
			if !cmd.Flags().Changed("seed") {
				o.Seed = rand.Uint64N(1_000_000)
			}
			switch {
			case o.Replicas > 1:
				asFleet(cmd, &o)
			case server == string(torture.Embedded):
				withoutServer(cmd, &o)
			}
			if err := o.Validate(); err != nil {
				return usage(err)
			}
			if !fault.Built {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "weir: this build kills at random only: chosen points and planted bugs need -tags torture (make torture)")
			}
			cmd.SetContext(ctx)
			return runTorture(cmd, o, as, keep)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&o.Seed, "seed", 0, "of the plan of faults (default: any)")
	f.StringVar(&server, "server", string(torture.External), "external: a nats-server of its own; embedded: in weir")
	f.BoolVar(&o.Idempotent, "idempotent", false, "the api takes idempotency keys")
	f.IntVar(&o.Replicas, "replicas", 1, "of weir; 2 to 4 are a fleet, with three NATS nodes and a Redis (redis-server must be installed)")
	for _, c := range o.Counts() {
		f.IntVar(c.N, c.Option, c.Alone, usageOf(c))
	}
	f.IntVar(&o.Rate, "rate", 20, "calls a second of a key")
	f.IntVar(&o.Keys, "keys", 6, "steady keys (default of a fleet: 24)")
	f.IntVar(&o.Jobs, "jobs", 40, "jobs a second, over the steady keys (default of a fleet: 24)")
	f.DurationVar(&o.Duration, "duration", 0, "start no new fault after this long (default: do all)")
	f.StringVar(&o.Durability, "durability", "always", "always or interval: when the server syncs")
	f.StringArrayVar(&points, "at", nil, "kill only at this point; may be repeated (-tags torture)")
	f.StringVar(&bug, "planted", "", "plant this bug (-tags torture)")
	f.StringVar(&keep, "dir", "", "keep ledger, receipts, logs and store here (default: a temporary directory, kept when a promise broke)")
	as.add(f, "the figures as one JSON object")
	return cmd
}

// withoutServer leaves out what needs a server of its own, unless it was asked for.
func withoutServer(cmd *cobra.Command, o *torture.Options) {
	for name, n := range map[string]*int{"server-kills": &o.ServerKills, "takeovers": &o.Takeovers} {
		if !cmd.Flags().Changed(name) {
			*n = 0
		}
	}
}

// asFleet takes a fleet's numbers of faults where none were asked for.
func asFleet(cmd *cobra.Command, o *torture.Options) {
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

// usageOf describes a number of faults; cobra adds the default of a weir alone itself.
func usageOf(c torture.Count) string {
	if c.Alone == c.InFleet {
		return c.Usage
	}
	return fmt.Sprintf("%s (default of a fleet: %d)", c.Usage, c.InFleet)
}

func runTorture(cmd *cobra.Command, o torture.Options, as format, dir string) (err error) {
	if o.Binary, err = os.Executable(); err != nil {
		return fmt.Errorf("find the weir binary: %w", err)
	}
	if o.Dir, err = tortureDir(dir); err != nil {
		return err
	}
	start := time.Now()
	r, err := torture.Run(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("%w\nafter %v; logs are in %s", err, time.Since(start).Round(time.Second), o.Dir)
	}
	if as == asJSON {
		err = printJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.Print(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return err
	case !r.Kept():
		return &exit{exitFailed, fmt.Errorf("a promise was broken; ledger, receipts and logs are in %s", o.Dir)}
	case dir == "":
		return os.RemoveAll(o.Dir)
	}
	return nil
}

// tortureDir is a directory that holds nothing yet.
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

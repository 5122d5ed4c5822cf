package commands

import (
	"fmt"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/cli/bench"

	"github.com/spf13/cobra"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure weir beside a bare reference in the same run",
		Long: `Measures weir as a producer and an api see it, beside a bare reference, in alternating rounds of one run. The
speed of a busy machine varies by a factor of three from one minute to the next, so compare figures of one run only.
weir runs in its own process with its own server, in a directory that is deleted afterwards. Nothing else is changed.`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, b := range []struct {
		name, short, long string
		o                 bench.Options
	}{
		{
			"accept", "Measure accepted jobs per second, beside a bare stream",
			`Publishes jobs asynchronously, 4,000 under way, until the last is acknowledged; then the same jobs in batches, a
hundred in each message. The references are bare JetStream streams, each on its own server: one that syncs every write,
one that does not, and one behind a relay. The relay stores each message and answers its producer, as an intake must,
and does nothing else.`,
			bench.Options{Rounds: 5, Jobs: 10_000, Keys: 1000},
		},
		{
			"dispatch", "Measure jobs per second to the api, beside a bare loop",
			`Publishes jobs and waits until the api, which answers at once, has got the last. The first reference is a work-queue
consumer that makes the same HTTP call and acknowledges, 64 at once. The second has a relay before it, which stores a
result and a record of each call as weir does, and does nothing else: the difference between it and weir is weir's own
work. With --redis two more weirs call an api with a shared limit. One counts it in the process, one in that Redis,
which should hold nothing else.`,
			bench.Options{Rounds: 5, Jobs: 5000, Keys: 8},
		},
		{
			"pace", "Measure the used part of a rate, and the fullest second, beside x/time/rate",
			`Calls a backlog of jobs at 100/s and 1,000/s on one key and at 1/s on many (--keys), and measures at the api when each
call arrives. The reference is a loop with golang.org/x/time/rate that has the jobs in memory.`,
			bench.Options{Rounds: 2, Jobs: 10, Keys: 1000, Seconds: 10},
		},
		{
			"keys", "Measure the cost of a call while many keys wait, and their memory",
			`Measures calls while a thousand keys wait, and again while --keys do, each beside the bare loop. Also measures weir's
resident memory before and after. The server runs in its own process.`,
			bench.Options{Rounds: 3, Jobs: 3000, Keys: 200_000},
		},
		{
			"latency", "Measure the time from a job's publish to its call, in an empty bucket",
			`Publishes a job every 10 ms and measures the time until the api has it. The references measure a message's time to a
consumer, each on its own server: one that syncs every write, one that does not. A round has --jobs samples.`,
			bench.Options{Rounds: 5, Jobs: 300, Keys: 1},
		},
		{
			"fleet", "Measure several replicas on one NATS cluster and one Redis, beside a bare loop",
			`Runs three nats-servers, a Redis (redis-server must be installed) and as many replicas as --replicas says, one size after
the other. Measures jobs per second to an api that answers at once, the processor time of each group of processes, the
messages of NATS and the commands of Redis, a job and while the fleet is idle. Then it kills one replica with kill -9, and
measures how long that replica's keys wait for their next call. Each replica is as on a machine of its own: the others
learn of its death by its lease. All keys share a limit in Redis, which holds no call back. Every stream has three
copies. The reference is a loop that reads such a stream and makes the same call, 64 at once, while no replica runs. All
processes share this machine, so on few cores more replicas are not faster: look at what a job takes.`,
			bench.Options{Rounds: 3, Jobs: 3000, Keys: 200, Replicas: []int{1, 2, 3, 5}},
		},
	} {
		cmd.AddCommand(oneBenchCommand(b.name, b.short, b.long, b.o))
	}
	cmd.AddCommand(&cobra.Command{
		Use: "role NAME SETTINGS", Short: "Play a part in a measurement, for the measurement", Hidden: true, Args: cli.Takes("NAME", "SETTINGS"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return bench.Play(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args[0], args[1])
		},
	})
	return cmd
}

func oneBenchCommand(name, short, long string, o bench.Options) *cobra.Command {
	o.Server = bench.Inside
	if o.Seconds == 0 {
		o.Seconds = 10
	}
	cmd := &cobra.Command{
		Use: name, Short: short, Long: long,
		Example: "  weir bench " + name + "\n  weir bench " + name + " --rounds 9 --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Talk = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := bench.Run(cmd.Context(), name, o); err != nil {
				return fmt.Errorf("bench %s: %w", name, err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Rounds, "rounds", o.Rounds, "rounds of each contender, alternating, at most 100")
	if name == "pace" {
		f.IntVar(&o.Seconds, "seconds", o.Seconds, "how long a round keeps the rate, at most 3600")
	} else {
		f.IntVar(&o.Jobs, "jobs", o.Jobs, "jobs of a round, at most 1000000")
	}
	if name == "fleet" {
		f.IntSliceVar(&o.Replicas, "replicas", o.Replicas, "the sizes to measure, in replicas, each from 1 to 10")
	} else {
		f.StringVar(&o.Server, "server", bench.Inside, "where the server runs: inside weir, beside it, or the URL of one without weir's streams")
	}
	if name == "dispatch" {
		f.StringVar(&o.Redis, "redis", "", "the URL of a Redis: also measure limits in Redis beside limits in the process")
	}
	f.IntVar(&o.Keys, "keys", o.Keys, "number of keys, at most 1000000")
	f.IntVar(&o.Body, "body", 256, "bytes of a job's body, from 16 to 262144")
	f.StringVar(&o.Durability, "durability", "always", "the server's durability: always or interval")
	f.StringVar(&o.Dir, "dir", "", "directory for the temporary stores (default: the system's directory for temporary files)")
	o.As.Add(f, "the report as one JSON object")
	return cmd
}

// Package plans has the command plan: what other limits would do with the jobs of a file, or with those that weir
// recorded.
package plans

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/ops/whatif"
	"weir/cmd/weir/internal/serve/admin"

	"github.com/spf13/cobra"
)

// planFlags are the flags of the command plan.
type planFlags struct {
	trace, file, api string
	since, account   string
	rates            []string
	capacities       []int64
	bursts           []int64
	counts           string
	inFlight         int64
	callTime, bound  string
	suggest          bool
	as               cli.Format
}

// mostCandidates is the most candidates that one plan may have.
const mostCandidates = 1000

// Command returns the command plan.
func Command() *cobra.Command {
	f := planFlags{}
	cmd := &cobra.Command{
		Use:   "plan --trace FILE --rate RATE --capacity N",
		Short: "Simulate a rate and a capacity with recorded arrivals",
		Long: `Runs recorded arrivals through weir's own scheduler in virtual time. Reports how many jobs would have
overflowed, and how long the others would have waited. It calls no api.

--since plans from the jobs that the ledger and the letters of the running weir recorded, under the running
configuration or that of -f. Without other flags it says which keys overflow, which capacity or which rate would have
been enough, how many times as many jobs the limits bear, and when these come by the growth that the days show.
--account plans all apis of an account together. It reads at most ` + strconv.Itoa(plannedRecords) + ` records and ` + strconv.Itoa(plannedLetters) + `
letters, of at most ` + strconv.Itoa(plannedKeys) + ` keys, and says on stderr what the ledger does not tell ("weir help planning").
Exit code 3: no job came in that time.

--trace plans from a file and needs no server.

FILE is CSV whose first line is time,key, optionally with cost and took, or JSON objects with these fields, one per
line; - is stdin. A time is a number of seconds or an RFC 3339 time. cost applies to limits that read their cost from the
job. took is what the call really took, and applies to limits whose cost answers settle.

You may repeat --rate, --capacity and --burst: the command tries every combination. With -f it uses the limits of an api
in a configuration, and the other flags replace those of its bucket. --suggest searches for the smallest capacity at
which nothing overflows, and with --longest-wait for the slowest rate at which no job waits longer.

The simulated machine is never late, and the simulated api never fails and answers within --call-time. A trace has at
most ` + strconv.Itoa(whatif.MostJobs) + ` arrivals. Exit code 2: a line of the trace, or a limit, is not valid.`,
		Example: `  weir plan --api credit-check --since 7d
  weir plan --account acme --since 28d --json
  weir plan --api credit-check --since 7d --rate 10/s --rate 20/s --capacity 500
  weir plan --trace arrivals.csv --rate 10/s --capacity 500
  weir plan --trace arrivals.csv --rate 5/s --rate 10/s --capacity 100 --capacity 1000 --json
  weir plan --trace arrivals.csv --rate 2/s --burst 40 --counts token_bucket --suggest
  weir plan --trace arrivals.csv -f weir.yaml --api credit-check --suggest --longest-wait 30s`,
		Args: cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error { return planRun(cmd, &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.trace, "trace", "", "the recorded arrivals: CSV or JSON lines, or - for stdin")
	flags.StringArrayVar(&f.rates, "rate", nil, "the bucket's rate, such as 10/s; may be repeated")
	flags.Int64SliceVar(&f.capacities, "capacity", nil, "unfinished jobs that a key may have; may be repeated")
	flags.Int64SliceVar(&f.bursts, "burst", nil, "calls that may start together after idling; may be repeated")
	flags.StringVar(&f.counts, "counts", "", "how the api counts: window or token_bucket")
	flags.Int64Var(&f.inFlight, "in-flight", 0, "calls of one key running at once (default 4)")
	flags.StringVar(&f.callTime, "call-time", "0s", "how long every call takes")
	flags.StringVarP(&f.file, "file", "f", "", "a configuration file with the limits to try")
	flags.StringVar(&f.api, "api", "", "the api in the configuration, if it has several")
	flags.StringVar(&f.account, "account", "", "with --since: all apis of this account together")
	flags.StringVar(&f.since, "since", "", "plan from the jobs that came since this RFC 3339 time, or this long ago, such as 7d")
	flags.BoolVar(&f.suggest, "suggest", false, "find the smallest capacity at which nothing overflows")
	flags.StringVar(&f.bound, "longest-wait", "", "with --suggest: find the slowest rate at which no job waits longer, such as 30s")
	f.as.Add(flags, "one JSON object per line and candidate")
	return cmd
}

// planRun reads the trace, runs every candidate against it, and prints the outcomes.
func planRun(cmd *cobra.Command, f *planFlags) error {
	switch {
	case f.since != "" && f.trace != "":
		return cli.Usage(errors.New("--trace plans from a file, and --since from the ledger: write one of them"))
	case f.since != "":
		return planSince(cmd, f)
	case f.account != "":
		return cli.Usage(errors.New("--account needs --since: an account is planned from the ledger"))
	case f.trace == "":
		return cli.Usage(errors.New("--trace FILE is missing: the recorded arrivals; or --since 7d, to plan from the ledger"))
	}
	trace, err := f.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	base, err := f.base()
	if err != nil {
		return cli.Usage(err)
	}
	return f.tryAll(cmd, trace, base)
}

// tryAll runs every candidate against a trace, and prints the outcomes.
func (f *planFlags) tryAll(cmd *cobra.Command, trace *whatif.Trace, base whatif.Candidate) error {
	bound, err := f.longestWait()
	if err != nil {
		return cli.Usage(err)
	}
	candidates, err := f.candidates(base)
	if err != nil {
		return cli.Usage(err)
	}
	bar := cli.NewProgressBar(cmd.ErrOrStderr(), "plan", trace.Jobs())
	defer bar.Clear()
	var outcomes []*whatif.Outcome
	for i := range candidates {
		o, err := f.try(cmd.Context(), trace, &candidates[i], bound, bar.Show)
		if err != nil {
			return err
		}
		outcomes = append(outcomes, o)
		if f.as == cli.AsJSON {
			bar.Clear()
			if err := cli.PrintJSON(cmd.OutOrStdout(), o); err != nil {
				return err
			}
		}
	}
	bar.Clear()
	if f.as == cli.AsJSON {
		return nil
	}
	return printPlan(cmd.OutOrStdout(), outcomes)
}

func (f *planFlags) try(ctx context.Context, t *whatif.Trace, c *whatif.Candidate, bound time.Duration, progress func(int)) (*whatif.Outcome, error) {
	if f.suggest {
		return whatif.Suggest(ctx, t, *c, bound, progress)
	}
	return whatif.Run(ctx, t, c, progress)
}

func (f *planFlags) read(stdin io.Reader) (*whatif.Trace, error) {
	in, name := stdin, "stdin"
	if f.trace != "-" {
		file, err := os.Open(f.trace)
		if err != nil {
			return nil, cli.Usage(fmt.Errorf("--trace: %w", err))
		}
		defer file.Close()
		in, name = file, f.trace
	}
	t, err := whatif.ReadTrace(in, name, whatif.MostJobs)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return t, nil
}

func (f *planFlags) longestWait() (time.Duration, error) {
	if f.bound == "" {
		return 0, nil
	}
	bound, err := grammar.ParseDuration(f.bound)
	switch {
	case err != nil:
		return 0, fmt.Errorf("--longest-wait: %w", err)
	case bound <= 0:
		return 0, errors.New("--longest-wait must be above 0s: write 1ms or more")
	case !f.suggest:
		return 0, errors.New("--longest-wait is what --suggest seeks a rate for: write --suggest too")
	}
	return bound, nil
}

// candidates returns a candidate for every combination of the flags' values. All other limits are those of base.
func (f *planFlags) candidates(base whatif.Candidate) (all []whatif.Candidate, err error) {
	if base.CallTime, err = grammar.ParseDuration(f.callTime); err != nil {
		return nil, fmt.Errorf("--call-time: %w", err)
	}
	if f.inFlight != 0 {
		base.Rules.Key.InFlight = f.inFlight
	}
	if base.Rules.Key.InFlight < 1 {
		return nil, fmt.Errorf("--in-flight %d is not a whole number from 1", f.inFlight)
	}
	rates := []bucket.Rate{base.Rules.Key.Rate}
	if len(f.rates) > 0 {
		rates = nil
	}
	for _, text := range f.rates {
		r, err := grammar.ParseRate(text)
		if err != nil {
			return nil, fmt.Errorf("--rate: %w", err)
		}
		r.Burst, r.Counts = base.Rules.Key.Rate.Burst, base.Rules.Key.Rate.Counts
		rates = append(rates, r)
	}
	for _, r := range rates {
		for _, burst := range orElse(f.bursts, r.Burst) {
			for _, capacity := range orElse(f.capacities, base.Rules.Key.Capacity) {
				c := base
				c.Rules.Key.Rate, c.Rules.Key.Capacity = r, capacity
				c.Rules.Key.Rate.Burst = burst
				if err := f.check(&c); err != nil {
					return nil, err
				}
				all = append(all, c)
			}
		}
	}
	if len(all) > mostCandidates {
		return nil, fmt.Errorf("%d candidates are more than %d", len(all), mostCandidates)
	}
	return all, nil
}

// check returns what is wrong with a candidate, in terms of the flags. It also puts --counts into the candidate.
func (f *planFlags) check(c *whatif.Candidate) error {
	r := &c.Rules.Key.Rate
	if f.counts != "" {
		r.Counts = bucket.Counting(f.counts)
	}
	switch {
	case r.Count == 0 && f.suggest && f.bound != "":
		// The count is only a start: --suggest searches for the right one.
		*r = bucket.Rate{Count: 1, Per: time.Second, Burst: max(1, r.Burst), Counts: r.Counts}
		if r.Burst > 1 {
			return errors.New("--burst needs a --rate: it is a part of its count, or what is beside it")
		}
	case r.Count == 0:
		return errors.New("--rate is missing: write one, such as 10/s, or name a configuration with -f")
	case r.Burst > r.Count && r.Counts != bucket.ByTokens:
		return fmt.Errorf("--burst %d is more than %s may see in any period of %s: write --counts token_bucket, or a burst of at most %d",
			r.Burst, grammar.FormatRate(*r), grammar.FormatDuration(r.Per), r.Count)
	}
	if c.Rules.Key.Capacity < 1 && !f.suggest {
		return fmt.Errorf("--capacity %d is not a whole number from 1", c.Rules.Key.Capacity)
	}
	return c.Rules.Validate()
}

// base returns the candidate that the flags change: it has the limits of the api in the file, or defaults.
func (f *planFlags) base() (whatif.Candidate, error) {
	if f.file == "" {
		if f.api != "" {
			return whatif.Candidate{}, errors.New("--api needs -f: it names an api of that configuration")
		}
		return whatif.Candidate{Rules: bucket.Rules{Key: bucket.KeyLimits{Rate: bucket.Rate{Burst: 1}, InFlight: 4}, Jitter: config.DefaultJitter}}, nil
	}
	c, err := f.configuration()
	if err != nil {
		return whatif.Candidate{}, err
	}
	if f.api == "" && len(c.APIs) == 1 {
		f.api = c.APIs[0].Name
	}
	api, ok := c.API(f.api)
	switch {
	case ok:
		return whatif.CandidateOf(api), nil
	case f.api == "":
		return whatif.Candidate{}, fmt.Errorf("%s has %d apis: say which with --api", f.file, len(c.APIs))
	}
	return whatif.Candidate{}, fmt.Errorf("%s has no api %q", f.file, f.api)
}

// configuration returns the configuration in the file of -f, or nil if the flag names none.
func (f *planFlags) configuration() (*config.Config, error) {
	if f.file == "" {
		return nil, nil //nolint:nilnil // the running configuration
	}
	return admin.ReadConfig(f.file)
}

func orElse(given []int64, otherwise int64) []int64 {
	if len(given) == 0 {
		return []int64{otherwise}
	}
	return given
}

// printPlan prints one line for each candidate.
func printPlan(out io.Writer, outcomes []*whatif.Outcome) error {
	t := &cli.Table{}
	t.Row("RATE", "BURST", "CAPACITY", "JOBS", "ACCEPTED", "OVERFLOWED", "CALLED", "WAIT P50", "P95", "P99", "MAX", "DEEPEST")
	ms := func(ms float64) string { return cli.Brief(time.Duration(ms * float64(time.Millisecond))) }
	count := strconv.Itoa
	for _, o := range outcomes {
		burst := strconv.FormatInt(o.Burst, 10)
		if o.Counts == bucket.ByTokens {
			burst += " (token bucket)"
		}
		t.Row(o.Rate, burst, strconv.FormatInt(o.Capacity, 10), count(o.Jobs), count(o.Accepted), count(o.Overflowed), count(o.Called),
			ms(o.Wait.P50), ms(o.Wait.P95), ms(o.Wait.P99), ms(o.Wait.Max), count(o.Deepest.Depth)+" of "+cli.Visible(o.Deepest.Key))
	}
	return t.Print(out)
}

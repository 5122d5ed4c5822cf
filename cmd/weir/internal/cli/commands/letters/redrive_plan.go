package letters

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/ops/deadview"

	"github.com/spf13/cobra"
)

// printPlan prints the plan: to stdout with --dry-run or --json, otherwise to stderr. With --json it prints nothing
// unless only is true, which says that the command prints only the plan.
func (f *redriveFlags) printPlan(cmd *cobra.Command, p *deadview.PlannedRedrive, only bool) error {
	out := cmd.ErrOrStderr()
	if f.dryRun || only && f.as == cli.AsJSON {
		out = cmd.OutOrStdout()
	}
	if f.as == cli.AsJSON {
		if !only {
			return nil // in JSON only the tally is printed
		}
		return cli.PrintJSON(out, p.Shown())
	}
	t := &cli.Table{}
	if p.Letters > 0 {
		t.Row("letters", fmt.Sprintf("%d of %s, the oldest %s old", p.Letters, cli.Count(p.Keys, "key"), cli.Brief(time.Since(p.Oldest))))
	} else {
		t.Row("letters", "0")
	}
	cost := grammar.Money(p.Cost).String()
	if p.BilledBefore > 0 {
		cost += fmt.Sprintf("; %d of them were billed before, and would cost %s again", p.BilledBefore, grammar.Money(p.BilledBeforeCost))
	}
	t.Row("cost", cost)
	if p.MaybeBilled > 0 {
		t.Row("warning", fmt.Sprintf("the calls of %d of them may have been billed: the api may bill them twice", p.MaybeBilled))
	}
	duration := cli.Brief(p.Duration())
	if p.Draining > p.Publishing {
		duration += ": " + p.Slowest
	} else if p.Letters > 0 {
		duration += ": --rate " + f.rate
	}
	t.Row("duration", duration)
	if p.Overflow > 0 {
		text := fmt.Sprintf("about %d find no room in their buckets at --rate %s", p.Overflow, f.rate)
		if p.Roomy != nil {
			text += "; none should at --rate " + grammar.FormatRate(*p.Roomy)
		}
		t.Row("overflow", text)
	}
	if p.Settled > 0 {
		t.Row("settled", fmt.Sprintf("%d whose job has gone on since: only the letter is deleted", p.Settled))
	}
	for _, skip := range slices.Sorted(maps.Keys(p.Skipped)) {
		t.Row("left alone", strconv.Itoa(p.Skipped[skip])+" "+deadview.SkipText(skip))
	}
	if err := t.Print(out); err != nil || f.dryRun {
		return err
	}
	f.planned = p.Skipped
	_, err := fmt.Fprintln(out) // an empty line between the plan and the outcome
	return err
}

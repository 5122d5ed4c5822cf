package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/deadletter"

	"github.com/spf13/cobra"
)

// planJSON is what a redrive would do, as --json prints it.
type planJSON struct {
	DryRun      bool                    `json:"dry_run"`
	Letters     int                     `json:"letters"`
	Keys        int                     `json:"keys"`
	Oldest      *time.Time              `json:"oldest,omitempty"`
	Cost        string                  `json:"cost"`
	BilledOnce  int                     `json:"billed_before"`
	BilledCost  string                  `json:"billed_before_cost"`
	MaybeBilled int                     `json:"maybe_billed"`
	DurationMS  int64                   `json:"duration_ms"`
	Rate        string                  `json:"rate"`
	Slowest     string                  `json:"slowest,omitempty"`
	NoRoom      int64                   `json:"no_room_now"` // if all came at once
	Overflow    int64                   `json:"overflow"`    // at the rate
	RoomyRate   string                  `json:"roomy_rate,omitempty"`
	Settled     int                     `json:"settled"`
	Skipped     map[deadletter.Skip]int `json:"skipped"`
}

// printPlan tells what would be done: on stdout where that is all that is asked for, and else as talk.
func (f *redriveFlags) printPlan(cmd *cobra.Command, p *deadletter.Plan) error {
	out := cmd.ErrOrStderr()
	if f.dryRun {
		out = cmd.OutOrStdout()
	}
	if f.as == cli.AsJSON {
		if !f.dryRun {
			return nil // the tally is the one object
		}
		j := planJSON{
			DryRun: true, Letters: p.Letters, Keys: p.Keys, Cost: config.Money(p.Cost).String(), BilledOnce: p.BilledBefore,
			BilledCost: config.Money(p.BilledBeforeCost).String(), MaybeBilled: p.MaybeBilled, DurationMS: p.Duration().Milliseconds(),
			Rate: f.rate, Slowest: p.Slowest, NoRoom: p.NoRoom, Overflow: p.Overflow, Settled: p.Settled, Skipped: p.Skipped,
		}
		if p.Roomy != nil {
			j.RoomyRate = config.FormatRate(*p.Roomy)
		}
		if !p.Oldest.IsZero() {
			j.Oldest = new(p.Oldest.UTC())
		}
		return cli.PrintJSON(out, j)
	}
	t := &cli.Table{}
	if p.Letters > 0 {
		t.Row("letters", fmt.Sprintf("%d of %s, the oldest %s old", p.Letters, cli.Count(p.Keys, "key"), cli.Brief(time.Since(p.Oldest))))
	} else {
		t.Row("letters", "0")
	}
	cost := config.Money(p.Cost).String()
	if p.BilledBefore > 0 {
		cost += fmt.Sprintf("; %d of them were billed before, and would cost %s again", p.BilledBefore, config.Money(p.BilledBeforeCost))
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
			text += "; none should at --rate " + config.FormatRate(*p.Roomy)
		}
		t.Row("overflow", text)
	}
	if p.Settled > 0 {
		t.Row("settled", fmt.Sprintf("%d whose job has gone on since: only the letter is deleted", p.Settled))
	}
	for _, skip := range slices.Sorted(maps.Keys(p.Skipped)) {
		t.Row("left alone", strconv.Itoa(p.Skipped[skip])+" "+skipText(skip))
	}
	if err := t.Print(out); err != nil || f.dryRun {
		return err
	}
	f.planned = p.Skipped
	_, err := fmt.Fprintln(out) // between what is planned and what was done
	return err
}

// skipText says why letters stay, and what would change that.
func skipText(skip deadletter.Skip) string {
	switch skip {
	case deadletter.SkipUnknown:
		return "of unknown outcome: --include-unknown redrives them, and the api may bill them twice; dead reconcile asks the api"
	case deadletter.SkipCancelled:
		return "that somebody cancelled: --reason cancelled redrives them"
	case deadletter.SkipDeadline:
		return "whose deadline has passed: --drop-deadline redrives them"
	case deadletter.SkipResubmitted:
		return "whose producer has sent the job again since: purge them"
	case deadletter.SkipSameID:
		return "whose id another job has got since: redrive that one first"
	case deadletter.SkipNoBody:
		return "whose body was too large to keep (413): their producer must send them again"
	case deadletter.SkipNoAPI:
		return "of apis that are not configured: configure the api again, or purge them"
	case deadletter.SkipNoKey:
		return "without a key: their producer must send them again"
	case deadletter.SkipForeign:
		return "that weir did not write"
	}
	return string(skip)
}

func skippedText(skipped map[deadletter.Skip]int) string {
	var texts []string
	for _, skip := range slices.Sorted(maps.Keys(skipped)) {
		texts = append(texts, strconv.Itoa(skipped[skip])+" "+skipText(skip))
	}
	return strings.Join(texts, "; ")
}

// tallyJSON is what a redrive did, as --json prints it.
type tallyJSON struct {
	Redriven   int                     `json:"redriven"`
	Known      int                     `json:"known_already"`
	Overflowed int                     `json:"overflowed"`
	Refused    int                     `json:"refused"`
	Settled    int                     `json:"settled"`
	Skipped    map[deadletter.Skip]int `json:"skipped"`
	Left       int                     `json:"not_deleted"`
}

// printTally writes what was done. For people it leaves out the letters left alone that the plan has told them of.
func (f *redriveFlags) printTally(out io.Writer, t *deadletter.Tally) error {
	planned := f.planned
	if f.as == cli.AsJSON {
		return cli.PrintJSON(out, tallyJSON{t.Redriven, t.Known, t.Overflowed, t.Refused, t.Settled, t.Skipped, t.Left})
	}
	tab := &cli.Table{}
	tab.Row("redriven", strconv.Itoa(t.Redriven+t.Known))
	for _, line := range []struct {
		name string
		n    int
		what string
	}{
		{"overflowed", t.Overflowed, "again, each a new letter"},
		{"refused", t.Refused, "again, each a new letter"},
		{"settled", t.Settled, "whose job had gone on: the letter is deleted"},
		{"not deleted", t.Left, "though the job has gone on"},
	} {
		if line.n > 0 {
			tab.Row(line.name, strconv.Itoa(line.n)+" "+line.what)
		}
	}
	for _, skip := range slices.Sorted(maps.Keys(t.Skipped)) {
		if t.Skipped[skip] != planned[skip] {
			tab.Row("left alone", strconv.Itoa(t.Skipped[skip])+" "+skipText(skip))
		}
	}
	return tab.Print(out)
}

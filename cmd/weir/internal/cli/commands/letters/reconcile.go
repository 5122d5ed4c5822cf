package letters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/bucket/stream"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/serve/admin"
	"weir/deadletter"
	"weir/dispatcher/inquiry"

	"github.com/spf13/cobra"
)

// reconcileFlags are the flags of a reconciliation.
type reconcileFlags struct{ letterOperation }

func deadReconcileCommand() *cobra.Command {
	f := reconcileFlags{}
	cmd := &cobra.Command{
		Use:   "reconcile [SEQ...]",
		Short: "Ask the api about letters with an unknown outcome",
		Long: `Asks the api about the calls of letters 'unknown', by the inquiry in its configuration. A job that was
processed gets its result. A job that was not processed is submitted again, as by dead redrive. Otherwise the letter
stays. If the call began an operation, its address is asked instead: a job whose operation is done gets its result.
Letters of cancelled operations can be asked about by their numbers.

A running weir asks, at the inquiry's rate and within the api's limits. It believes "not processed" only if the letter
is older than the inquiry's after. You may interrupt the command at any time and start it again, or run two. It waits
for a redrive to end.

--dry-run says how many letters could be asked about, and how long that takes. Without --yes the command asks first;
without a terminal it does nothing then.

Exit code 4: nothing was done without --yes, or no letter could be asked about. 3: no letter matches.`,
		Example: "  weir dead reconcile --api credit-check --dry-run\n  weir dead reconcile --api credit-check --since 2h --yes\n  weir dead reconcile 17 18 --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.reason != "" && f.reason != string(deadletter.Unknown) {
				return cli.Usage(errors.New("only letters unknown are asked about: leave --reason out"))
			}
			if len(args) == 0 {
				f.reason = string(deadletter.Unknown)
			}
			return f.on(cmd, args, func(ctx context.Context, c *connect.Connection, store *deadview.Store) error {
				return f.reconcile(ctx, cmd, c, store)
			})
		},
	}
	f.addTo(cmd, "", "letters per duration, such as 1/s or 30/min (default: the inquiry's rate)", "only report what would be asked")
	return cmd
}

// inquiryPlan is the set of planned inquiries.
type inquiryPlan struct {
	letters []askedAbout
	skipped map[string]int // by reason
	takes   time.Duration  // the least time that the inquiries take, by the rates
}

type askedAbout struct {
	api string
	seq uint64
}

// Reasons why no inquiry is made about a letter.
const (
	notUnknown  = "not unknown"
	noAPI       = "of apis that are not configured"
	noInquiry   = "of apis without an inquiry in their configuration"
	noOperation = "of apis whose configuration has no operation any more"
	mostLetters = 100_000
)

// plan finds the letters about which the api can be asked, and counts the other letters by reason.
func (f *reconcileFlags) plan(ctx context.Context, c *connect.Connection, store *deadview.Store) (*inquiryPlan, error) {
	current, ok := admin.RunningConfig(ctx, c)
	if !ok {
		return nil, cli.NotFound(errors.New("the running configuration cannot be read: it says how apis are asked"))
	}
	scope, err := store.Bound(ctx, f.chosen.Selection)
	if err != nil {
		return nil, err
	}
	p, each := &inquiryPlan{skipped: map[string]int{}}, map[string]time.Duration{}
	walk := scope.Walk(deadletter.HeadersOnly)
	for {
		chunk, err := walk.Chunk(ctx)
		if err != nil {
			return nil, c.Explain(err)
		}
		if len(chunk) == 0 {
			break
		}
		for i := range chunk {
			k := &chunk[i]
			api, configured := current.API(k.API)
			switch {
			case !k.CanBeAsked():
				p.skipped[notUnknown]++
			case !configured:
				p.skipped[noAPI]++
			case k.Operation == "" && api.Inquiry == nil:
				p.skipped[noInquiry]++
			case k.Operation != "" && api.Operation == nil:
				p.skipped[noOperation]++
			case len(p.letters) == mostLetters:
				return nil, cli.Usage(fmt.Errorf("more than %d letters match: choose fewer, by --key, --since or --until", mostLetters))
			default:
				p.letters = append(p.letters, askedAbout{k.API, k.Seq})
				if k.Operation != "" {
					each[k.API] += interval(api.Operation.Poll.Rate)
				} else {
					each[k.API] += interval(api.Inquiry.Rate)
				}
			}
		}
	}
	if len(p.letters)+len(p.skipped) == 0 {
		return nil, deadview.None(f.chosen.Filter)
	}
	for _, d := range each {
		p.takes += d // inquiries are made one after the other
	}
	if f.every != nil {
		p.takes = max(p.takes, time.Duration(len(p.letters))*interval(*f.every))
	}
	return p, nil
}

func interval(r bucket.Rate) time.Duration { return r.Per / time.Duration(max(1, r.Count)) }

// reconcile counts the letters, asks for confirmation, makes weir ask the api about each, and reports the outcome.
func (f *reconcileFlags) reconcile(ctx context.Context, cmd *cobra.Command, c *connect.Connection, store *deadview.Store) error {
	p, err := f.plan(ctx, c, store)
	if err != nil {
		return err
	}
	if f.dryRun {
		return f.printPlan(cmd, p)
	}
	if len(p.letters) == 0 {
		return cli.Refused(fmt.Errorf("none of these letters can be asked about: %s", textOf(p.skipped)))
	}
	if err := f.confirm.Insist(cmd, fmt.Sprintf("Ask about %s?", cli.Count(len(p.letters), "letter"))); err != nil {
		return err
	}
	did := &reconciliation{skipped: p.skipped, ends: map[inquiry.ReconcileEnd]int{}}
	bar := cli.NewProgressBar(cmd.ErrOrStderr(), "asked", len(p.letters))
	for i, l := range p.letters {
		if i > 0 && f.every != nil && !stream.Sleep(ctx, interval(*f.every)) {
			err = context.Cause(ctx)
		}
		if err == nil {
			err = f.one(ctx, c, l, did)
		}
		if err != nil {
			break
		}
		bar.Show(i + 1)
	}
	bar.Clear()
	if printErr := f.printDone(cmd, did); printErr != nil {
		return printErr
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errors.New("stopped: what was not asked about is still a letter; start it again to go on")
	case err != nil:
		return err
	}
	return nil
}

// If another process holds the right to end letters, the command waits for heldRest and tries again. It tries heldTries
// times in all.
const (
	heldRest  = 2 * time.Second
	heldTries = 30
)

// one makes weir ask the api about one letter.
func (f *reconcileFlags) one(ctx context.Context, c *connect.Connection, l askedAbout, did *reconciliation) error {
	for try := 1; ; try++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		out, err := admin.Reconcile(c, l.api, l.seq)
		switch {
		case errors.Is(err, admin.ErrHeldByOther) && try < heldTries && stream.Sleep(ctx, heldRest):
			continue
		case err != nil:
			return fmt.Errorf("letter %d: %w", l.seq, err)
		}
		did.ends[out.End]++
		if out.End == inquiry.EndedStays {
			did.staying = append(did.staying, out)
		}
		did.letters = append(did.letters, out)
		return nil
	}
}

// reconciliation is the outcome of the inquiries.
type reconciliation struct {
	skipped map[string]int
	ends    map[inquiry.ReconcileEnd]int
	staying []inquiry.Reconciled
	letters []inquiry.Reconciled
}

// reconcileJSON is the plan or the outcome, as --json prints it.
type reconcileJSON struct {
	DryRun     bool                 `json:"dry_run"`
	Letters    int                  `json:"letters"` // letters to ask about, or letters asked about
	DurationMS int64                `json:"duration_ms,omitempty"`
	Done       int                  `json:"done"`
	Redriven   int                  `json:"redriven"`
	Overflowed int                  `json:"overflowed"`
	Stays      int                  `json:"stays"`
	Gone       int                  `json:"gone"`
	Skipped    map[string]int       `json:"skipped"`
	Each       []inquiry.Reconciled `json:"each,omitempty"`
}

func (f *reconcileFlags) printPlan(cmd *cobra.Command, p *inquiryPlan) error {
	if f.as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), reconcileJSON{
			DryRun: true, Letters: len(p.letters), DurationMS: p.takes.Milliseconds(), Skipped: p.skipped,
		})
	}
	t := &cli.Table{}
	t.Row("letters", strconv.Itoa(len(p.letters)))
	t.Row("cost", grammar.Money(0).String()+" for asking; a job that was not processed is called again")
	t.Row("duration", "at least "+cli.Brief(p.takes))
	for _, why := range slices.Sorted(maps.Keys(p.skipped)) {
		t.Row("left alone", strconv.Itoa(p.skipped[why])+" "+why)
	}
	return t.Print(cmd.OutOrStdout())
}

// mostShown is how many letters are reported one by one.
const mostShown = 20

func (f *reconcileFlags) printDone(cmd *cobra.Command, did *reconciliation) error {
	if f.as == cli.AsJSON {
		return cli.PrintJSON(cmd.OutOrStdout(), reconcileJSON{
			Letters: len(did.letters), Done: did.ends[inquiry.EndedDone], Redriven: did.ends[inquiry.EndedRedriven],
			Overflowed: did.ends[inquiry.EndedOverflowed], Stays: did.ends[inquiry.EndedStays], Gone: did.ends[inquiry.EndedGone],
			Skipped: did.skipped, Each: did.letters,
		})
	}
	t := &cli.Table{}
	t.Row("done", fmt.Sprintf("%d found processed: their results are stored", did.ends[inquiry.EndedDone]))
	t.Row("redriven", fmt.Sprintf("%d found not processed: handed in again", did.ends[inquiry.EndedRedriven]))
	if n := did.ends[inquiry.EndedOverflowed]; n > 0 {
		t.Row("overflowed", fmt.Sprintf("%d found not processed, and refused again: each a new letter", n))
	}
	if n := did.ends[inquiry.EndedGone]; n > 0 {
		t.Row("gone", fmt.Sprintf("%d that were ended by someone else", n))
	}
	t.Row("left", strconv.Itoa(did.ends[inquiry.EndedStays]))
	for _, l := range did.staying[:min(mostShown, len(did.staying))] {
		t.Row("letter "+strconv.FormatUint(l.Seq, 10), l.Why)
	}
	for _, why := range slices.Sorted(maps.Keys(did.skipped)) {
		t.Row("left alone", strconv.Itoa(did.skipped[why])+" "+why)
	}
	return t.PrintWhole(cmd.OutOrStdout())
}

func textOf(skipped map[string]int) string {
	text := ""
	for _, why := range slices.Sorted(maps.Keys(skipped)) {
		if text != "" {
			text += "; "
		}
		text += strconv.Itoa(skipped[why]) + " " + why
	}
	return text
}

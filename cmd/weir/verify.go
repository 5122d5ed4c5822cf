package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config"
	"weir/cmd/weir/internal/connect"
	"weir/cmd/weir/internal/control"
	"weir/cmd/weir/internal/limitstate"
	"weir/cmd/weir/internal/terminal"
	"weir/dispatcher/ledger"
)

func verifyCommand() *cobra.Command {
	api, since, as := "", "", cli.ForPeople
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Hold every recorded call against the limits",
		Long: `Replays the ledger (the stream WEIR_CALLS) against the limits of the running configuration and says for each the worst
window that was found, in which key, and the verdict. It looks at every window, exactly, and does not care how the calls
were planned. Of quotas and budgets it says how much is used now. It also looks for jobs that were called again after a call that may have been processed, and adds up what
was spent.

What is checked is when calls started, by the clock of the weir that made them: how long they then took to the api the
ledger cannot know; that is what the configured jitter is for. Calls from before the limits were last changed are left
out, unless --since asks for them.

It keeps about 500 bytes for every key, and the calls of one period of each limit. Exit code 0: all limits held, 1: one
did not, or a job was called twice that must not be, 3: the ledger has no such calls.`,
		Example: "  weir verify\n  weir verify --api credit-check --since 1d --json",
		Args:    cli.Takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			from, err := readTime(since, time.Now())
			if err != nil {
				return cli.Usage(fmt.Errorf("--since %w", err))
			}
			c, err := connect.Dial()
			if err != nil {
				return err
			}
			defer c.Close()
			replays, err := newReplays(cmd.Context(), c, api, from)
			if err != nil {
				return err
			}
			if err := readLedger(c, cmd, replays, api, from); err != nil {
				return err
			}
			return tellVerdicts(cmd, replays, as)
		},
	}
	cmd.Flags().StringVar(&api, "api", "", "only of this api")
	cmd.Flags().StringVar(&since, "since", "", "only calls from this RFC 3339 time on, or from this long ago, as in 2h or 1d")
	as.Add(cmd.Flags(), "one JSON object a line, one for each api")
	return cmd
}

// followGrace is how long after a change of limits calls may still go by the former ones.
const followGrace = 2 * time.Second

// newReplays makes a replay for every api, or the one that was asked for. Each begins when its limits came into force, if
// from does not say.
func newReplays(ctx context.Context, c *connect.Connection, only string, from time.Time) (map[string]*replay, error) {
	current, err := control.CurrentVersion(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, ok := current.Config.API(only); only != "" && !ok {
		return nil, control.NoAPI(only, current.Config)
	}
	entries, err := control.ConfigHistory(ctx, c)
	if err != nil {
		return nil, err
	}
	var versions []*control.Version
	for _, entry := range slices.Backward(entries) {
		if v, err := control.ReadVersion(entry); err == nil {
			versions = append(versions, v)
		}
	}
	replays := map[string]*replay{}
	for i := range current.Config.APIs {
		a := &current.Config.APIs[i]
		if only != "" && a.Name != only {
			continue
		}
		if !from.IsZero() {
			replays[a.Name] = newReplay(a, from)
			continue
		}
		changed := inForceSince(versions, a.Name)
		r := newReplay(a, changed)
		r.changed, r.account = changed, bucket.NewAccount(a.Rules)
		replays[a.Name] = r
	}
	return replays, nil
}

// inForceSince is when an api's present configuration came into force; zero if it always was. The newest version comes
// first.
func inForceSince(versions []*control.Version, api string) time.Time {
	for i, v := range versions[1:] {
		if concerns(v.Config.Diff(versions[0].Config), api) {
			if _, existed := v.Config.API(api); !existed {
				return time.Time{}
			}
			return versions[i].At.Add(followGrace)
		}
	}
	return time.Time{}
}

// readLedger reads the ledger.
func readLedger(c *connect.Connection, cmd *cobra.Command, replays map[string]*replay, api string, from time.Time) error {
	talk, strangers, shown := cmd.ErrOrStderr(), 0, false
	unreadable, err := ledger.Read(cmd.Context(), c.JetStream, ledger.Filter{API: api, Since: from},
		func(call *ledger.Record, read, of uint64) error {
			if read%progressEvery == 0 && terminal.Watched(talk) {
				shown = true
				_, _ = fmt.Fprintf(talk, "\r%d of %d calls", read, of)
			}
			if r := replays[call.API]; r != nil {
				r.take(call)
			} else {
				strangers++
			}
			return nil
		})
	if shown {
		_, _ = fmt.Fprint(talk, "\r\x1b[K")
	}
	if errors.Is(err, ledger.ErrNoLedger) {
		return cli.NotFound(err)
	} else if err != nil {
		return c.Explain(err)
	}
	for _, r := range replays {
		r.check(math.MaxInt64)
	}
	if strangers > 0 {
		_, _ = fmt.Fprintf(talk, "weir: %s of apis that are not configured any more: not checked\n", cli.Count(strangers, "call"))
	}
	if unreadable > 0 {
		_, _ = fmt.Fprintf(talk, "weir: %s that cannot be read: not checked\n", cli.Count(unreadable, "record"))
	}
	return nil
}

// verifiedJSON is what was found of one api, as --json prints it.
type verifiedJSON struct {
	API     string         `json:"api"`
	Verdict bucket.Outcome `json:"verdict"`
	Since   time.Time      `json:"since,omitzero"` // calls from before are left out
	Keys    int            `json:"keys"`
	verified

	BilledYes     string       `json:"billed_yes"`
	BilledUnknown string       `json:"billed_unknown"`
	Limits        []limitJSON  `json:"limits"`
	Repeated      []secondCall `json:"repeated,omitempty"` // the first ones
}

// limitJSON is what was found of one limit: of a key's own, in the worst key.
type limitJSON struct {
	Limit        string          `json:"limit"`
	Key          string          `json:"key,omitempty"` // empty for one that all keys share
	Verdict      bucket.Outcome  `json:"verdict"`
	Calls        int             `json:"calls"`
	Units        int64           `json:"units"`
	Worst        int64           `json:"worst"` // units in one window, or calls at once
	Allowed      int64           `json:"allowed"`
	Used         *int64          `json:"used,omitempty"` // of a quota or budget, now; absent with --since
	Unit         limitstate.Unit `json:"unit"`
	Per          string          `json:"per"`
	Shadow       bool            `json:"shadow,omitempty"` // only watches: would have held calls if the verdict is fail
	Burst        float64         `json:"burst,omitempty"`
	BurstAllowed int64           `json:"burst_allowed,omitempty"`
}

func tellVerdicts(cmd *cobra.Command, replays map[string]*replay, as cli.Format) error {
	failed, calls := false, 0
	t := &cli.Table{}
	t.Row("API", "LIMIT", "KEY", "CALLS", "WORST", "ALLOWED", "USED", "BURST", "VERDICT")
	var found []verifiedJSON
	var silent []*replay // of apis without a call
	for _, name := range slices.Sorted(maps.Keys(replays)) {
		v := replays[name].verdict()
		if v.Calls+v.Unplaced+v.Unsent == 0 {
			silent = append(silent, replays[name])
			continue
		}
		found = append(found, v)
		failed, calls = failed || v.Verdict != bucket.Pass, calls+v.Calls
		for _, l := range v.Limits {
			t.Row(v.API, l.Limit, cmp.Or(l.Key, "all"), strconv.Itoa(l.Calls), limitstate.Amount(l.Worst, l.Unit),
				limitstate.Amount(l.Allowed, l.Unit)+" "+l.Per, usedFound(l), burstFound(l), verdictText(l))
		}
		if as == cli.AsJSON {
			if err := cli.PrintJSON(cmd.OutOrStdout(), v); err != nil {
				return err
			}
		}
	}
	if len(found) == 0 {
		return noCalls(silent)
	}
	for _, r := range silent {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s: no call%s\n", r.api.Name, sinceText(r.changed))
	}
	if as == cli.ForPeople {
		if err := errors.Join(t.Print(cmd.OutOrStdout()), tellTotals(cmd.OutOrStdout(), found)); err != nil {
			return err
		}
	}
	if failed {
		return errors.New("not every limit is proven to have held")
	}
	return nil
}

// noCalls says that there is nothing to verify, and where there may be.
func noCalls(silent []*replay) error {
	var changed time.Time
	for _, r := range silent {
		if r.changed.After(changed) {
			changed = r.changed
		}
	}
	if changed.IsZero() {
		return cli.NotFound(errors.New("the ledger has no such calls"))
	}
	return cli.NotFound(fmt.Errorf("no call%s: --since 1d looks further back", sinceText(changed)))
}

// sinceText says from when on calls were looked at, where that is not as it was asked for.
func sinceText(changed time.Time) string {
	if changed.IsZero() {
		return ""
	}
	return " since the limits were last changed (" + changed.UTC().Format(time.RFC3339) + ")"
}

// verdictText says of a limit that only watches what it would have done.
func verdictText(l limitJSON) string {
	switch {
	case !l.Shadow:
		return string(l.Verdict)
	case l.Verdict == bucket.Fail:
		return "only watches: would have held calls"
	}
	return "only watches: would have held none"
}

func usedFound(l limitJSON) string {
	if l.Used == nil {
		return ""
	}
	return limitstate.Amount(*l.Used, l.Unit)
}

func burstFound(l limitJSON) string {
	if l.BurstAllowed == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f of %d", l.Burst, l.BurstAllowed)
}

// tellTotals says in words what the table has no place for.
func tellTotals(w io.Writer, found []verifiedJSON) error {
	for _, v := range found {
		started := ""
		if !v.First.IsZero() {
			started = fmt.Sprintf(", started %s to %s", cli.ClockTime(v.First), cli.ClockTime(v.Last))
		}
		_, err := fmt.Fprintf(w, "\n%s: %s. %s of %s%s; spent %s, and perhaps %s more.\n", v.API, v.Verdict, cli.Count(v.Calls, "call"), cli.Count(v.Keys, "key"),
			started, v.BilledYes, v.BilledUnknown)
		if err != nil {
			return fmt.Errorf("write the verdict: %w", err)
		}
		for _, note := range []struct {
			n          int
			noun, text string
		}{
			{v.Unsent, "attempt", "of which nothing was sent"},
			{v.Unplaced, "call", "that may have been made before a crash, at a time that nobody knows: not held against limits"},
			{v.Late, "call", "recorded too late to be held against limits"},
			{v.Repeats, "call", "after one of the same job that may have been processed"},
			{v.Unkeyed, "call", "of these that the api could not take for the one before, by its idempotency key"},
		} {
			if note.n > 0 {
				_, _ = fmt.Fprintf(w, "  %s %s\n", cli.Count(note.n, note.noun), note.text)
			}
		}
		for _, r := range v.Repeated {
			_, _ = fmt.Fprintf(w, "    job %s of key %s: call %d at %s, after %s\n", cli.Visible(r.Job), cli.Visible(r.Key), r.Call, cli.ClockTime(r.Started), cli.Visible(r.Before))
		}
	}
	return nil
}

// verdict is what was found. A job may be called again under its idempotency key; otherwise that fails.
func (r *replay) verdict() verifiedJSON {
	v := verifiedJSON{
		API: r.api.Name, Since: r.since, Verdict: bucket.Pass, Keys: len(r.keys), verified: r.verified,
		BilledYes: r.BilledYes.String(), BilledUnknown: r.BilledUnknown.String(),
	}
	own := map[string]limitJSON{}
	for name, k := range r.keys {
		limits := r.api.Rules.For(name)
		rate := limitOf(bucket.Limit{Name: bucket.OwnRate, Rate: &limits.Rate}, k.rate)
		inFlight := limitOf(bucket.Limit{Name: "in_flight", InFlight: limits.InFlight}, k.inFlight)
		for _, l := range []limitJSON{rate, inFlight} {
			l.Key = name
			if worst, ok := own[l.Limit]; !ok || worse(l, worst) {
				own[l.Limit] = l
			}
		}
	}
	for _, name := range []string{bucket.OwnRate, "in_flight"} {
		if l, ok := own[name]; ok {
			l.Limit = "bucket." + name
			v.Limits = append(v.Limits, l)
		}
	}
	for i, c := range r.shared {
		l := limitOf(r.api.Rules.Shared[i], c)
		l.Used = r.used(&r.api.Rules.Shared[i], time.Now())
		v.Limits = append(v.Limits, l)
	}
	if r.Late > 0 {
		v.Verdict = bucket.Inconclusive
	}
	for _, l := range v.Limits {
		if l.Verdict == bucket.Fail && !l.Shadow {
			v.Verdict = bucket.Fail
		}
	}
	if r.Unkeyed > 0 {
		v.Verdict, v.Repeated = bucket.Fail, r.repeated
	}
	return v
}

func limitOf(l bucket.Limit, c *bucket.Checking) limitJSON {
	v := c.Verdict()
	j := limitJSON{
		Limit: l.Name, Verdict: v.Outcome, Calls: v.Calls, Units: v.Units, Worst: v.Worst, Allowed: v.Allowed, Burst: v.Burst, Unit: limitstate.InUnits, Per: "at once", Shadow: l.Shadow,
	}
	switch {
	case l.Rate != nil:
		j.Per, j.BurstAllowed = "per "+config.FormatDuration(l.Rate.Per), l.Rate.Burst
	case l.Quota != nil:
		j.Per = quotaPer(*l.Quota)
	case l.Budget != nil:
		j.Unit, j.Per = limitstate.InMoney, quotaPer(l.Budget.Quota)
	}
	return j
}

func quotaPer(q bucket.Quota) string {
	if q.Window == bucket.Calendar {
		return "per " + string(q.Unit)
	}
	return "per " + config.FormatDuration(q.Per)
}

// worse orders what was found of one limit in two keys: by the verdict, by how full the worst window was, by the burst.
func worse(a, b limitJSON) bool {
	if (a.Verdict == bucket.Fail) != (b.Verdict == bucket.Fail) {
		return a.Verdict == bucket.Fail
	}
	fullA, fullB := float64(a.Worst)/float64(a.Allowed), float64(b.Worst)/float64(b.Allowed)
	return cmp.Or(cmp.Compare(fullA, fullB), cmp.Compare(a.Burst, b.Burst), cmp.Compare(b.Key, a.Key)) > 0
}

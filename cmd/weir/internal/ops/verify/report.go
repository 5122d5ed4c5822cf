package verify

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/config/grammar"
	"weir/cmd/weir/internal/serve/limitstate"
)

// Report holds the findings about one api, as --json prints them.
type Report struct {
	API     string         `json:"api"`
	Verdict bucket.Outcome `json:"verdict"`
	Since   time.Time      `json:"since,omitzero"` // earlier calls are left out
	Keys    int            `json:"keys"`
	Counts

	BilledYes     string        `json:"billed_yes"` // of every call that was read, as `weir spend` reports it
	BilledUnknown string        `json:"billed_unknown"`
	BilledSince   time.Time     `json:"billed_since,omitzero"` // when the first of them started
	Limits        []LimitReport `json:"limits"`
	Repeated      []SecondCall  `json:"repeated,omitempty"` // the first ones
}

// LimitReport holds the findings about one limit. For a key's own limit they are those of the worst key.
type LimitReport struct {
	Limit        string          `json:"limit"`
	Key          string          `json:"key,omitempty"`     // empty for a limit that all keys share
	Replica      string          `json:"replica,omitempty"` // of a limit of each replica: the replica that came closest to it
	Verdict      bucket.Outcome  `json:"verdict"`
	Calls        int             `json:"calls"`
	Units        int64           `json:"units"`
	Worst        int64           `json:"worst"` // units that calls had reserved in one window, or calls at once
	Allowed      int64           `json:"allowed"`
	Beyond       int64           `json:"beyond,omitempty"` // how far a window went over because calls took more than they had reserved
	Used         *int64          `json:"used,omitempty"`   // of a quota or budget, now; absent with --since
	Unit         limitstate.Unit `json:"unit"`
	Per          string          `json:"per"`
	Shadow       bool            `json:"shadow,omitempty"` // only watches; on fail it would have held calls
	Burst        float64         `json:"burst,omitempty"`
	BurstAllowed int64           `json:"burst_allowed,omitempty"`
	late         time.Duration   // how late calls came after their slots, if the limit failed although no window had too many calls
}

func tellVerdicts(o Options, replays map[string]*replay) error {
	failed, calls := false, 0
	t := &cli.Table{}
	t.Row("API", "LIMIT", "KEY", "CALLS", "WORST", "ALLOWED", "USED", "BURST", "VERDICT")
	var found []Report
	var silent []*replay // of apis without calls
	for _, name := range slices.Sorted(maps.Keys(replays)) {
		v := replays[name].verdict()
		if v.Calls+v.Unplaced+v.Unsent == 0 {
			silent = append(silent, replays[name])
			continue
		}
		found = append(found, v)
		failed, calls = failed || v.Verdict != bucket.Pass, calls+v.Calls
		for _, l := range v.Limits {
			t.Row(v.API, l.Limit, cmp.Or(l.Key, l.Replica, "all"), strconv.Itoa(l.Calls), limitstate.Amount(l.Worst, l.Unit),
				limitstate.Amount(l.Allowed, l.Unit)+" "+l.Per, usedFound(l), burstFound(l), verdictText(l))
		}
		if o.As == cli.AsJSON {
			if err := cli.PrintJSON(o.Out, v); err != nil {
				return err
			}
		}
	}
	if len(found) == 0 {
		return noCalls(silent)
	}
	for _, r := range silent {
		_, _ = fmt.Fprintf(o.Talk, "weir: %s: no call%s\n", r.api.Name, sinceText(r.changed))
	}
	if o.As == cli.ForPeople {
		if err := errors.Join(t.Print(o.Out), tellTotals(o.Out, found)); err != nil {
			return err
		}
	}
	if failed {
		return errors.New("it is not proven that every limit was kept")
	}
	return nil
}

// noCalls returns the error for a ledger without calls to verify. It says where to find calls.
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

// sinceText says from when on calls were checked, if that is not the requested time.
func sinceText(changed time.Time) string {
	if changed.IsZero() {
		return ""
	}
	return " since the limits were last changed (" + changed.UTC().Format(time.RFC3339) + ")"
}

// verdictText returns the verdict as text. For a limit in shadow it says what the limit would have done.
func verdictText(l LimitReport) string {
	switch {
	case !l.Shadow:
		return string(l.Verdict)
	case l.Verdict == bucket.Fail:
		return "only watches: would have held calls"
	}
	return "only watches: would have held none"
}

func usedFound(l LimitReport) string {
	if l.Used == nil {
		return ""
	}
	return limitstate.Amount(*l.Used, l.Unit)
}

func burstFound(l LimitReport) string {
	if l.BurstAllowed == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f of %d", l.Burst, l.BurstAllowed)
}

// tellTotals writes the findings that have no place in the table of limits.
func tellTotals(w io.Writer, found []Report) error {
	for _, v := range found {
		started := ""
		if !v.First.IsZero() {
			started = fmt.Sprintf(", started %s to %s", cli.ClockTime(v.First), cli.ClockTime(v.Last))
		}
		since := ""
		if !v.BilledSince.IsZero() {
			since = " since " + v.BilledSince.UTC().Format(time.RFC3339)
		}
		_, err := fmt.Fprintf(w, "\n%s: %s. %s of %s%s; spent %s%s, and perhaps %s more.\n", v.API, v.Verdict, cli.Count(v.Calls, "call"), cli.Count(v.Keys, "key"),
			started, v.BilledYes, since, v.BilledUnknown)
		if err != nil {
			return fmt.Errorf("write the verdict: %w", err)
		}
		for _, l := range v.Limits {
			if l.Beyond > 0 {
				_, _ = fmt.Fprintf(w, "  %s: calls took more than they had reserved: up to %s over %s %s\n",
					l.Limit, limitstate.Amount(l.Beyond, l.Unit), limitstate.Amount(max(l.Allowed, l.Worst), l.Unit), l.Per)
			}
			if l.late > 0 {
				_, _ = fmt.Fprintf(w, "  %s: no window had too many calls, but calls came up to %s later than their slots, which is more than jitter: a larger jitter covers a busy machine\n",
					l.Limit, l.late.Round(100*time.Microsecond))
			}
		}
		for _, note := range []struct {
			n          int
			noun, text string
		}{
			{v.Unsent, "attempt", "of which nothing was sent"},
			{v.Reused, "job", "that got the answer of an equal one without a call"},
			{v.Unplaced, "call", "that may have been made before a crash, in an unknown slot: not held against limits"},
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

// verdict returns the findings about the api. A second call of a job passes only under the job's idempotency key.
func (r *replay) verdict() Report {
	v := Report{
		API: r.api.Name, Since: r.since, Verdict: bucket.Pass, Keys: len(r.keys), Counts: r.Counts,
		BilledSince: r.MoneyFrom,
	}
	v.BilledYes, v.BilledUnknown = r.Money.Text()
	own := map[string]LimitReport{}
	for name, k := range r.keys {
		limits := r.api.Rules.For(name)
		rate := limitOf(bucket.Limit{Name: bucket.OwnRate, Rate: &limits.Rate}, k.rate.Checking)
		inFlight := limitOf(bucket.Limit{Name: "in_flight", InFlight: limits.InFlight}, k.inFlight.Checking)
		for _, l := range []LimitReport{rate, inFlight} {
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
		l := limitOf(r.api.Rules.Shared[i], c.Checking)
		l.Used = r.used(&r.api.Rules.Shared[i], time.Now())
		v.Limits = append(v.Limits, l)
	}
	for i := range r.rules.Replica {
		v.Limits = append(v.Limits, r.worstReplica(i))
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

// worstReplica returns the findings about the i-th limit of each replica, for the replica that came closest to its
// limit.
func (r *replay) worstReplica(i int) LimitReport {
	l := r.rules.Replica[i]
	worst := limitOf(l, newChecked(l, nil, r.jitter).Checking)
	for _, name := range slices.Sorted(maps.Keys(r.replicas)) {
		of := limitOf(l, r.replicas[name][i].Checking)
		if of.Replica = name; worst.Replica == "" || worse(of, worst) {
			worst = of
		}
	}
	return worst
}

func limitOf(l bucket.Limit, c *bucket.Checking) LimitReport {
	v := c.Verdict()
	j := LimitReport{
		Limit: l.Name, Verdict: v.Outcome, Calls: v.Calls, Units: v.Units, Worst: v.Worst, Allowed: v.Allowed, Beyond: v.Beyond,
		Burst: v.Burst, Unit: limitstate.InUnits, Per: "at once", Shadow: l.Shadow,
	}
	switch l.Kind() {
	case bucket.KindRate:
		j.Per, j.BurstAllowed = "per "+grammar.FormatDuration(l.Rate.Per), l.Rate.Burst
		if v.Outcome == bucket.Fail && v.Worst <= v.Allowed && l.Rate.Counted() == bucket.ByWindow {
			j.late = time.Duration((v.Burst - float64(l.Rate.Burst)) / float64(l.Rate.Count) * float64(l.Rate.Per))
		}
	case bucket.KindQuota:
		j.Per = quotaPer(*l.Quota)
	case bucket.KindInFlight: // counts calls at one time
	case bucket.KindBudget:
		j.Unit, j.Per = limitstate.InMoney, quotaPer(l.Budget.Quota)
	}
	return j
}

func quotaPer(q bucket.Quota) string {
	if q.Window == bucket.Calendar {
		return "per " + string(q.Unit)
	}
	return "per " + grammar.FormatDuration(q.Per)
}

// worse reports whether the findings about a limit are worse for the key of a than for the key of b. The verdict
// decides, then how full the worst window was, then the burst.
func worse(a, b LimitReport) bool {
	if (a.Verdict == bucket.Fail) != (b.Verdict == bucket.Fail) {
		return a.Verdict == bucket.Fail
	}
	fullA, fullB := float64(a.Worst)/float64(a.Allowed), float64(b.Worst)/float64(b.Allowed)
	return cmp.Or(cmp.Compare(fullA, fullB), cmp.Compare(a.Burst, b.Burst), cmp.Compare(b.Key, a.Key)) > 0
}

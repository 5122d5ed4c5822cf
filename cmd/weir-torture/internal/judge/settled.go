package judge

import (
	"fmt"
	"slices"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
	"weir/dispatcher/ledger"
)

// Charge is what the record of one call says of the limit in tokens.
type Charge struct {
	Outcome  string
	Took     int64
	Reserved int64 // less than took if the call took more
	Lone     bool  // recovery made the record from a result
	Held     bool  // the limit kept the job waiting longest
}

// Charges are the charges of each job, by its id.
type Charges map[string][]Charge

// Bill is the spending that weir reports, in millionths of the currency.
type Bill struct{ Spent, InDoubt int64 }

// judgeSettled checks by the api's ledger that weir has charged done jobs what they took, that no window exceeds the
// limit by more than what calls took beyond their reservations, and that weir spend equals the bill for done jobs. A
// job whose outcome is unknown counts in windows with what weir has charged for it, and its bill must be in doubt.
func (e *Evidence) judgeSettled(r *Report) {
	if !e.Options.Settled {
		return
	}
	for _, job := range e.Charges {
		for _, c := range job {
			if c.Held {
				r.TokensHeld++
			}
		}
	}
	r.ReportedSpent, r.ReportedInDoubt = e.Bill.Spent, e.Bill.InDoubt
	known := slices.Clone(e.Arrivals) // with the tokens that were reserved, if a call took more
	for i := range known {
		a := &known[i]
		if !a.Billed {
			continue
		}
		job := JobOf(a)
		if e.Ends.Results[job] > 0 {
			r.BilledDone += a.Charge
		} else {
			r.BilledInDoubt += a.Charge
		}
		took := a.Used.Input + a.Used.Output
		reserved := e.judgeCharge(r, job, took)
		if reserved < took {
			r.Exceeding++
		}
		a.Used = fakeapi.Tokens{Input: min(took, reserved)}
	}
	limit := fakeapi.UseLimit{
		Name: plan.TokensName, Count: plan.TokensCount, Per: plan.TokensPer, Scope: fakeapi.AllKeys, Weigh: fakeapi.Weigh{Input: 1, Output: 1},
	}
	all, within := fakeapi.Windows(e.Arrivals, limit)[0], fakeapi.Windows(known, limit)[0]
	limit.Per = max(1, plan.TokensPer-e.stampError())
	certain := fakeapi.Windows(known, limit)[0]
	r.TokensFullest, r.TokensByTold = all.Fullest, all.Over-within.Over
	r.TokensOver, r.TokensDoubtful = certain.Over, within.Over-certain.Over
	if certain.Over > 0 {
		r.example("over the limit in tokens", fmt.Sprintf("%+v", certain))
	}
}

// judgeCharge judges what weir has charged for a billed call, and returns how many tokens the call had reserved.
func (e *Evidence) judgeCharge(r *Report, job string, took int64) (reserved int64) {
	reserved = took
	for _, c := range e.Charges[job] {
		if c.Reserved > 0 {
			reserved = min(reserved, c.Reserved)
		}
	}
	if e.Ends.Results[job] == 0 {
		return reserved
	}
	i := slices.IndexFunc(e.Charges[job], func(c Charge) bool { return c.Outcome == ledger.Done })
	r.Settled++
	switch {
	case i < 0:
		r.SettledWrong++
		r.example("no record of a job that is done", job)
	case e.Charges[job][i].Took == took:
	case e.Charges[job][i].Lone && !namesUnknown(e.Options):
		r.SettledUntold++
	default:
		r.SettledWrong++
		r.example("charged other tokens than it took", fmt.Sprintf("%s: %d, not %d", job, e.Charges[job][i].Took, took))
	}
	return reserved
}

// addSettled adds the findings on tokens and on the bill.
func (r *Report) addSettled(add func(name string, bad int, format string, args ...any)) {
	add("settled", r.SettledWrong+r.TokensOver, "%d calls charged what they took, %d not, %d by recovery without their notes; "+
		"%d took more than reserved, and made %d windows exceed the limit; %d windows exceed it without that, and %d perhaps; "+
		"the fullest has %d tokens of %d; the limit held %d calls",
		r.Settled-r.SettledWrong-r.SettledUntold, r.SettledWrong, r.SettledUntold,
		r.Exceeding, r.TokensByTold, r.TokensOver, r.TokensDoubtful,
		r.TokensFullest, plan.TokensCount, r.TokensHeld)
	wrong := 0
	if r.ReportedSpent != r.BilledDone || r.BilledInDoubt > 0 && r.ReportedInDoubt == 0 {
		wrong = 1
	}
	add("the bill", wrong, "%.6f for jobs that are done, and weir spend says %.6f; %.6f for others, and weir has %.6f in doubt",
		units(r.BilledDone), units(r.ReportedSpent), units(r.BilledInDoubt), units(r.ReportedInDoubt))
}

// units returns millionths of the currency in its units.
func units(millionths int64) float64 { return float64(millionths) / 1e6 }

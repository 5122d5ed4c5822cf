package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
	"weir/deadletter"
)

// byKill is how the detail of a letter begins if weir parked the job because weir had died while the job's call was, or
// may have been, under way.
const byKill = "the worker died "

// noted is how long weir may take to note an answer of the api, on a machine that lets no program wait.
const noted = 50 * time.Millisecond

// judgeFlights finds the call of each job that a kill made unknown: a call that had reached the api and was not
// answered. It also checks that each result has the answer of its own job's call.
func (e *Evidence) judgeFlights(r *Report) {
	r.NamesUnknown = namesUnknown(e.Options)
	calls, numbers := map[string][]*fakeapi.Arrival{}, map[AnswerOf]string{}
	var at AnswerOf
	for i := range e.calls() {
		a := &e.calls()[i]
		if at.Place++; at.Call != a.Number {
			at = AnswerOf{a.Number, 0}
		}
		id := JobOf(a)
		calls[id] = append(calls[id], a)
		numbers[at] = id
	}
	for _, l := range e.Ends.Letters {
		if l.Reason != string(deadletter.Unknown) || !strings.HasPrefix(l.Detail, byKill) {
			continue
		}
		slack := noted + e.stampError()
		switch {
		case e.underWay(calls[l.Job], 0):
			r.UnknownUnderWay++
			continue
		case e.underWay(calls[l.Job], slack):
			r.UnknownUnderWay++
			r.UnknownAnswered++
			continue
		}
		if r.UnknownUnnamed++; r.NamesUnknown {
			r.example("unknown, and not under way at a kill", fmt.Sprintf("%s, %d calls: %s", l.Job, len(calls[l.Job]), l.Detail))
		}
	}
	for id, number := range e.Ends.Answers {
		if of, arrived := numbers[number]; arrived && of != cmp.Or(e.Ends.Reused[id], id) {
			r.OthersAnswers++
			r.example("another job's answer", fmt.Sprintf("%s has that of %s", id, of))
		}
	}
}

// namesUnknown reports whether every job that a kill made unknown must have had a call under way. This is so for a
// single weir that is only killed, on a machine that stays up.
func namesUnknown(o *plan.Options) bool {
	return !o.IsFleet() && o.Takeovers == 0 && o.PowerLosses == 0 && o.Cuts == 0 && o.Stops == 0
}

// underWay reports whether weir was killed while one of these calls was under way. slack is the tolerance at the call's
// start and at its end.
func (e *Evidence) underWay(calls []*fakeapi.Arrival, slack time.Duration) bool {
	return slices.ContainsFunc(calls, func(a *fakeapi.Arrival) bool {
		return slices.ContainsFunc(e.Kills, func(k Kill) bool {
			from, to := e.died(k)
			return k.What != "server" && time.Duration(a.At)-slack <= to && (a.End == 0 || from <= time.Duration(a.End)+slack)
		})
	})
}

// died returns the earliest and the latest time at which a process can have ended, by the ledger's clock. Both are the
// same if the torture killed the process. If the process killed itself at k.Point, the torture learned of that only at
// k.At, the latest time. The earliest is that of the last call before k.At, because the process was alive to make it.
func (e *Evidence) died(k Kill) (from, to time.Duration) {
	to = k.At.Sub(e.Began)
	if k.Point == "" {
		return to, to
	}
	for i := range e.Arrivals {
		if at := time.Duration(e.Arrivals[i].At); at <= to {
			from = max(from, at)
		}
	}
	return from, to
}

// cutShort reports whether a kill explains that a job was called at second, after a later job was called at first. It
// does if weir was killed between the two, and so soon after first that the kill may have prevented an earlier call
// that was late.
func (e *Evidence) cutShort(first, second int64, late time.Duration) bool {
	return slices.ContainsFunc(e.Kills, func(k Kill) bool {
		from, to := e.died(k)
		return k.What != "server" && time.Duration(first) <= to && to <= time.Duration(second) && from < time.Duration(first)+late
	})
}

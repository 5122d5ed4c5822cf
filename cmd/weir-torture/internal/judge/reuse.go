package judge

import (
	"fmt"
	"slices"
	"time"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// reuseJudge judges the answers that weir gives again.
type reuseJudge struct{ *Evidence }

// judge checks each end with a reused answer. The end must name a job that was called for the same request and has
// the same answer, and the end's own job must not have been called.
func (e reuseJudge) judge(r *Report) {
	if !e.Options.Reuse {
		return
	}
	asked, called := map[string]string{}, map[string]bool{}
	for _, p := range e.Receipts {
		asked[p.ID] = p.Key + " " + p.Ask
	}
	for _, a := range e.calls() {
		if !e.PushedBack(&a) {
			called[JobOf(&a)] = true
		}
	}
	for id, of := range e.Ends.Reused {
		r.Reused++
		wrong := ""
		switch answer, ok := e.Ends.Answers[of]; {
		case e.Ends.Results[of] == 0 || e.Ends.Reused[of] != "":
			wrong = "which has no answer of its own"
		case asked[id] != asked[of]:
			wrong = "which asked something else"
		case !ok || e.Ends.Answers[id] != answer:
			wrong = "which has another answer"
		case called[id]:
			wrong = "and was called too"
		default:
			continue
		}
		r.ReusedWrong++
		r.example("reused wrongly", fmt.Sprintf("%s has the answer of %s, %s", id, of, wrong))
	}
	e.judgeFresh(r)
}

// judgesFresh reports whether it is certain which answers weir knew, because only kills made it forget some.
func (e reuseJudge) judgesFresh() bool {
	return namesUnknown(e.Options) && e.Options.ServerKills+e.Options.DiskFulls == 0 && e.ByThem == 0
}

// judgeFresh finds jobs that were called although an equal job of their key was being called, or had a fresh answer.
func (e reuseJudge) judgeFresh(r *Report) {
	if r.JudgesFresh = e.judgesFresh(); !r.JudgesFresh {
		return
	}
	receipts := map[string]*Receipt{}
	for i := range e.Receipts {
		receipts[e.Receipts[i].ID] = &e.Receipts[i]
	}
	last := map[string]*fakeapi.Arrival{} // by request, the last answered call
	before := map[string]bool{}           // jobs that were called before
	for i := range e.calls() {
		a := &e.calls()[i]
		id := JobOf(a)
		p := receipts[id]
		if p == nil || p.Ask == "" {
			continue
		}
		request, again := p.Key+" "+p.Ask, before[id]
		before[id] = true
		if former := last[request]; former != nil && !again {
			switch answered := e.Ends.Stored[JobOf(former)]; {
			case !e.at(a).Before(answered.Add(plan.ReusedFor - noted - e.stampError())):
			case e.forgets(former, answered, a, p):
				r.AskedExcused++
			default:
				r.AskedAgain++
				r.example("called for a request whose answer was fresh", fmt.Sprintf("%s at %s, after %s at %s, answered at %s",
					id, clockOf(e.at(a)), JobOf(former), clockOf(e.at(former)), clockOf(answered)))
			}
		}
		if e.Ends.Answers[id].Call == a.Number && e.Ends.Reused[id] == "" {
			last[request] = a
		}
	}
}

// forgets reports whether a kill excuses a second call for a request. It does if weir was killed before it had stored
// the first call's answer, or between the submission and the call of the second job, or if weir had just started again
// and may not have known the first answer yet.
func (e reuseJudge) forgets(first *fakeapi.Arrival, answered time.Time, second *fakeapi.Arrival, of *Receipt) bool {
	return slices.ContainsFunc(e.Kills, func(k Kill) bool {
		earliest, latest := e.died(k)
		from, to := e.Began.Add(earliest), e.Began.Add(latest)
		if k.What == "server" || from.After(e.at(second)) {
			return false
		}
		unanswered := !to.Before(e.at(first)) && !from.After(answered.Add(noted))
		waited := !to.Before(of.At.Add(-of.Waited))
		return unanswered || waited || e.at(second).Before(e.calledAfter(to).Add(plan.RecallsFor))
	})
}

func clockOf(t time.Time) string { return t.Format("15:04:05.000") }

// calledAfter returns when the first call after a moment arrived, or the moment if there is none.
func (e reuseJudge) calledAfter(moment time.Time) time.Time {
	for i := range e.calls() {
		if at := e.at(&e.calls()[i]); at.After(moment) {
			return at
		}
	}
	return moment
}

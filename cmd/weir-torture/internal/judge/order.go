package judge

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// judgeOrder judges the order of the first calls within each priority of each key. A call that arrives less than the
// jitter after a later job's call was late, not out of order. A call is not out of order either if the network lost the
// job's first try, or if a kill prevented a call that was late.
func (e *Evidence) judgeOrder(r *Report) {
	seq, priority := map[string]string{}, map[string]bucket.Priority{}
	for _, p := range e.Receipts {
		if p.Code == 0 && !e.gone(&p) && !e.Damages.of(p.Stream) { // else a later job may have its sequence
			seq[p.ID] = strconv.FormatUint(p.Seq, 10)
			priority[p.ID] = p.Priority
		}
	}
	arrived, each := map[string]int{}, slices.Clone(e.calls())
	for i := range each {
		job := JobOf(&each[i])
		arrived[job]++
		each[i].Key += " " + priority[job].String()
	}
	place := func(a *fakeapi.Arrival) string { return seq[JobOf(a)] }
	wrong, _ := fakeapi.Order(each, place, fakeapi.FirstAttempts)
	for _, w := range wrong {
		job := JobOf(&w.After)
		switch late, allowed := time.Duration(w.After.At-w.Before.At), e.jitter()+e.stampError(); {
		case late < allowed, e.cutShort(w.Before.At, w.After.At, allowed), e.spoiltAt(w.Before.At, w.After.At),
			e.cutBefore(&w.After, arrived[job]):
			r.Overtaken++
		default:
			r.OutOfOrder++
			r.example("out of order", fmt.Sprintf("%s came %s after %s", job, late.Round(time.Millisecond), JobOf(&w.Before)))
		}
	}
	passed, _ := fakeapi.Order(e.calls(), place, fakeapi.FirstAttempts)
	for _, w := range passed {
		if priority[JobOf(&w.Before)] < priority[JobOf(&w.After)] {
			r.Passed++
		}
	}
}

// cutBefore reports whether a cut lost the first call of a job, so that a is a later one: weir reports more calls than
// have arrived, and there was a cut between the job's acceptance and this arrival.
func (e *Evidence) cutBefore(a *fakeapi.Arrival, arrived int) bool {
	id := JobOf(a)
	if e.Ends.Calls[id] <= arrived {
		return false
	}
	taken, at := e.Ends.Taken[id], e.Began.Add(time.Duration(a.At))
	return slices.ContainsFunc(e.Spoilt, func(s plan.Span) bool { return taken.Before(s.To) && s.From.Before(at) })
}

// spoiltAt reports whether connections were disturbed between two times of the ledger, or shortly before the first.
func (e *Evidence) spoiltAt(from, to int64) bool {
	first, last := e.Began.Add(time.Duration(from)-plan.CallTimeout-time.Second), e.Began.Add(time.Duration(to))
	return slices.ContainsFunc(e.Spoilt, func(s plan.Span) bool { return s.From.Before(last) && first.Before(s.To) })
}

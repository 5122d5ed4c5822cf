package judge

import (
	"net/http"
	"strconv"
	"strings"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// Apart separates calls from polls of operations.
func Apart(arrivals []fakeapi.Arrival) (calls, polls []fakeapi.Arrival) {
	for i := range arrivals {
		if a := &arrivals[i]; a.Method == http.MethodGet {
			polls = append(polls, *a)
		} else {
			calls = append(calls, *a)
		}
	}
	return calls, polls
}

// judgeOperations checks that no job is called again after its operation was polled, and that every poll asks about the
// operation of a call. It counts the operations that were running when weir was killed.
func (e *Evidence) judgeOperations(r *Report) {
	r.Polls = len(e.Polls)
	type operation struct {
		job         string
		first, last int64 // times of polls
	}
	began, polled := map[int64]*operation{}, map[string]int64{} // by call; and the time of each job's first poll
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		began[a.Number] = &operation{job: JobOf(a)} // even if its answer was lost: a repeat is told the same address
		if a.Status == http.StatusAccepted {
			r.Operations++
		}
	}
	for _, p := range fakeapi.ByTime(e.Polls) {
		number, err := strconv.ParseInt(strings.TrimPrefix(p.Path, plan.OperationsPath), 10, 64)
		o := began[number]
		if err != nil || o == nil {
			r.StrayPolls++
			r.example("a poll without an operation", p.Path)
			continue
		}
		if o.last = p.At; o.first == 0 {
			o.first = p.At
		}
		if _, before := polled[o.job]; !before {
			polled[o.job] = p.At
		}
	}
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		if at, ok := polled[JobOf(a)]; ok && at < a.At {
			r.SubmittedAgain++
			r.example("called again after its operation was polled", JobOf(a)+", at "+clockOf(e.at(a)))
		}
	}
	for _, a := range e.Arrivals {
		if e.killedBetween(a.End, began[a.Number].last) {
			r.OperationsKilled++
		}
	}
}

// killedBetween reports whether weir was killed between two times of the ledger.
func (e *Evidence) killedBetween(from, to int64) bool {
	for _, k := range e.Kills {
		if at := int64(k.At.Sub(e.Began)); k.What != "server" && from < at && at < to {
			return true
		}
	}
	return false
}

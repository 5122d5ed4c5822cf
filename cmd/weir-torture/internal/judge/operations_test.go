package judge

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// poll returns the nth arrival: a poll of a call's operation.
func poll(n, of int, at time.Duration) fakeapi.Arrival {
	return fakeapi.Arrival{
		Number: int64(n + 1), At: int64(at), End: int64(at) + 1, Method: http.MethodGet,
		Path: fmt.Sprint(plan.OperationsPath, of+1), Ending: fakeapi.Answered, Status: http.StatusOK,
	}
}

// operated is right, with an operation for each call that is polled twice. The first two ran when weir was killed.
func operated(idempotent bool) *Evidence {
	e := right(idempotent)
	e.Options.Operations = true
	e.Ends.Answers = map[string]AnswerOf{}
	for i := range e.Arrivals {
		e.Arrivals[i].Status = http.StatusAccepted
		at := time.Duration(e.Arrivals[i].At) + 400*time.Millisecond
		e.Polls = append(e.Polls, poll(100+2*i, i, at), poll(101+2*i, i, at+time.Second))
		e.Ends.Answers[fmt.Sprintf("k-%d", i)] = AnswerOf{int64(i + 1), 0}
	}
	return e
}

// TestJudgeOperations checks that each operation must be begun only once, and that polls are no calls.
func TestJudgeOperations(t *testing.T) {
	again := func(at time.Duration) func(e *Evidence) {
		return func(e *Evidence) {
			a := call(10, "k-8", at)
			a.Billed = false
			e.Arrivals = append(e.Arrivals, a)
		}
	}
	for _, c := range []struct {
		name       string
		idempotent bool
		spoil      func(e *Evidence)
		breaks     []string
	}{
		{"all well", false, func(*Evidence) {}, nil},
		{"all well, idempotent", true, func(*Evidence) {}, nil},
		{"called again", false, again(3 * time.Second), []string{"called twice", "operations"}},
		{"called again with its key, before the first poll", true, again(2350 * time.Millisecond), nil},
		{"called again with its key, after a poll", true, again(3 * time.Second), []string{"operations"}},
		{"a poll of nothing", false, func(e *Evidence) {
			e.Polls = append(e.Polls, poll(200, 77, time.Second))
		}, []string{"operations"}},
		{"the output of another job's operation", false, func(e *Evidence) {
			e.Ends.Answers["k-4"] = AnswerOf{4, 0}
		}, []string{"answers"}},
		{"many polls at once", false, func(e *Evidence) {
			for i := range e.Polls {
				e.Polls[i].At = int64(2300*time.Millisecond) + int64(i)
			}
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := operated(c.idempotent)
			c.spoil(e)
			r := Judge(e)
			var names []string
			for _, f := range r.Findings {
				if f.Outcome != bucket.Pass {
					names = append(names, f.Name)
				}
			}
			if !slices.Equal(names, c.breaks) {
				t.Errorf("broken: %q, want %q: %+v", names, c.breaks, r)
			}
			if r.Operations != 10 || r.Polls != len(e.Polls) || r.Calls != len(e.Arrivals) {
				t.Errorf("%d operations, %d polls, %d calls", r.Operations, r.Polls, r.Calls)
			}
		})
	}
	if r := Judge(operated(false)); r.OperationsKilled != 2 {
		t.Errorf("%d operations ran at the kill", r.OperationsKilled)
	}
	calls, polls := Apart([]fakeapi.Arrival{call(0, "k-0", 0), poll(1, 0, time.Second)})
	if len(calls) != 1 || len(polls) != 1 {
		t.Errorf("%d calls, %d polls", len(calls), len(polls))
	}
}

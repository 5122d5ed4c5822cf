package judge

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

// packCall returns the nth call, with some jobs and an idempotency key.
func packCall(n int, key string, at time.Duration, jobs ...int) fakeapi.Arrival {
	a := call(n, key, at)
	var bodies [][]byte
	for _, j := range jobs {
		bodies = append(bodies, fmt.Appendf(nil, `{"id":"k-%d"}`, j))
	}
	a.Body = slices.Concat([]byte("["), bytes.Join(bodies, []byte(",")), []byte("]"))
	return a
}

// packed is right, with the ten jobs called in two packs. The first pack was under way at the kill.
func packed(idempotent bool) *Evidence {
	e := right(idempotent)
	e.Options.Pack = 5
	e.Arrivals = []fakeapi.Arrival{packCall(0, "one", 0, 0, 1, 2, 3, 4), packCall(1, "two", time.Second, 5, 6, 7, 8, 9)}
	e.Arrivals[0].End = int64(600 * time.Millisecond)
	e.Ends.Answers = map[string]AnswerOf{"k-0": {1, 0}, "k-4": {1, 4}, "k-5": {2, 0}}
	return e
}

// TestJudgePacks checks that each job of a pack is judged by itself, and the pack's call as one call.
func TestJudgePacks(t *testing.T) {
	for _, c := range []struct {
		name       string
		idempotent bool
		spoil      func(e *Evidence)
		breaks     []string
	}{
		{"all well", false, func(*Evidence) {}, nil},
		{"all well, idempotent", true, func(*Evidence) {}, nil},
		{"a job without an end", false, func(e *Evidence) { delete(e.Ends.Results, "k-6") }, []string{"lost"}},
		{"a job called again in another pack", false, func(e *Evidence) {
			e.Arrivals = append(e.Arrivals, packCall(2, "", 2*time.Second, 4))
		}, []string{"called twice"}},
		{"called again after 429, in another pack", false, func(e *Evidence) {
			e.Arrivals[0].Status, e.Arrivals[0].Billed = 429, false
			e.Arrivals = append(e.Arrivals, packCall(2, "", 2*time.Second, 0, 1, 2, 3), packCall(3, "", 3*time.Second, 4))
		}, nil},
		{"a pack repeated with its key", true, func(e *Evidence) {
			e.Arrivals = append(e.Arrivals, packCall(2, "one", 2*time.Second, 0, 1, 2, 3, 4))
			e.Arrivals[2].Billed = false
		}, nil},
		{"a job of a pack repeated with another key", true, func(e *Evidence) {
			e.Arrivals = append(e.Arrivals, packCall(2, "three", 2*time.Second, 1))
			e.Arrivals[2].Billed = false
		}, []string{"called twice"}},
		{"a pack billed twice", true, func(e *Evidence) {
			e.Arrivals = append(e.Arrivals, packCall(2, "one", 2*time.Second, 0, 1, 2, 3, 4))
		}, []string{"called twice"}},
		{"the answer of another job of the pack", false, func(e *Evidence) { e.Ends.Answers["k-4"] = AnswerOf{1, 3} }, []string{"answers"}},
		{"packs out of order", false, func(e *Evidence) {
			e.Arrivals[0].At, e.Arrivals[0].End, e.Arrivals[1].At = int64(time.Second), int64(2*time.Second), 0
		}, []string{"out of order"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := packed(c.idempotent)
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
			if r.Packs < 2 || r.Calls != len(e.Arrivals) {
				t.Errorf("%d calls, %d packs, of %d arrivals", r.Calls, r.Packs, len(e.Arrivals))
			}
		})
	}
	if r := Judge(packed(false)); r.PacksKilled != 1 || r.Called != 10 {
		t.Errorf("%d packs were under way at the kill, and %d jobs called", r.PacksKilled, r.Called)
	}
}

package judge

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"weir/bucket"
	"weir/cmd/internal/fakeapi"
)

// reused is right, with eight jobs that ask for the same, after two that ask for other things. The first of the eight
// is called long after the kill, and the others have its answer.
func reused(idempotent bool) *Evidence {
	e := right(idempotent)
	e.Options.Reuse = true
	e.Ends.Letters = slices.DeleteFunc(e.Ends.Letters, func(l Letter) bool { return l.Job == "k-3" })
	e.Arrivals = e.Arrivals[:3]
	e.Arrivals[2].At = int64(10 * time.Second)
	e.Arrivals[2].End = e.Arrivals[2].At + int64(time.Second)
	e.Ends.Answers, e.Ends.Reused, e.Ends.Stored = map[string]AnswerOf{}, map[string]string{}, map[string]time.Time{}
	for i := range 10 {
		id := fmt.Sprintf("k-%d", i)
		e.Receipts[i].Ask, e.Receipts[i].At = "ask=1", e.at(&e.Arrivals[2])
		e.Ends.Results[id] = 1
		e.Ends.Answers[id] = AnswerOf{int64(min(i, 2) + 1), 0}
		e.Ends.Stored[id] = e.Began.Add(11 * time.Second)
		if i > 2 {
			e.Ends.Reused[id] = "k-2"
		}
	}
	e.Receipts[0].Ask, e.Receipts[1].Ask = "ask=3", "ask=4"
	return e
}

// calledToo changes the evidence: a job was called at a time, and has the answer of that call.
func calledToo(job int, at time.Duration) func(e *Evidence) {
	return func(e *Evidence) {
		id := fmt.Sprintf("k-%d", job)
		e.Arrivals = append(e.Arrivals, call(50, id, at))
		e.Ends.Answers[id] = AnswerOf{51, 0}
		delete(e.Ends.Reused, id)
		e.Ends.Stored[id] = e.Began.Add(at)
	}
}

// TestJudgeReuse checks that a job may have the answer of another job only if that was called for the same request, and
// must have it while it is fresh.
func TestJudgeReuse(t *testing.T) {
	for _, c := range []struct {
		name   string
		spoil  func(e *Evidence)
		breaks []string
	}{
		{"all well", func(*Evidence) {}, nil},
		{"the answer of a job that has one of another", func(e *Evidence) {
			e.Ends.Reused["k-5"] = "k-4"
		}, []string{"answers", "reused"}},
		{"the answer of a job that is not done", func(e *Evidence) {
			e.Ends.Reused["k-5"] = "full"
		}, []string{"answers", "reused"}},
		{"the answer to another request", func(e *Evidence) { e.Receipts[5].Ask = "ask=2" }, []string{"reused"}},
		{"another answer than that of the job it names", func(e *Evidence) {
			e.Ends.Answers["k-5"] = AnswerOf{1, 0}
		}, []string{"answers", "reused"}},
		{"called, and reused", func(e *Evidence) {
			e.Arrivals = append(e.Arrivals, call(50, "k-5", 20*time.Second))
		}, []string{"reused"}},
		{"called while the answer is fresh", calledToo(5, 15*time.Second), []string{"reused"}},
		{"called while the first is under way", func(e *Evidence) {
			calledToo(5, 10500*time.Millisecond)(e)
			e.Kills = nil
		}, []string{"reused"}},
		{"called when the answer is old", calledToo(9, 17*time.Second), nil},
		{"called while the answer is fresh, after a kill before that was stored", func(e *Evidence) {
			calledToo(5, 15*time.Second)(e)
			e.Kills[0].At = e.Began.Add(10500 * time.Millisecond)
		}, nil},
		{"called while the answer is fresh, after a kill while it waited", func(e *Evidence) {
			calledToo(5, 15*time.Second)(e)
			e.Receipts[5].At, e.Kills[0].At = e.Began.Add(12*time.Second), e.Began.Add(13*time.Second)
		}, nil},
		{"called while the answer is fresh, after a kill before it came", func(e *Evidence) {
			calledToo(5, 16*time.Second)(e)
			e.Receipts[5].At, e.Kills[0].At = e.Began.Add(15*time.Second), e.Began.Add(13*time.Second)
			e.Arrivals = append(e.Arrivals, fakeapi.Arrival{Number: 60, At: int64(13500 * time.Millisecond), Key: "other"})
		}, []string{"called", "reused"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := reused(false)
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
		})
	}
	if r := Judge(reused(false)); r.Reused != 7 || !r.JudgesFresh {
		t.Errorf("%d reused, calls for fresh answers judged: %v", r.Reused, r.JudgesFresh)
	}
}

package judge

import (
	"slices"
	"testing"

	"weir/bucket"
)

// posted is right, with every end posted once.
func posted() *Evidence {
	e := right(false)
	e.Posted = Posts{}
	for of := range e.Ends.count() {
		e.Posted[of] = map[string]int{of.Kind + " " + of.Job: 1}
	}
	return e
}

// TestJudgeCallbacks checks that every end must be posted, under an id that no other end has.
func TestJudgeCallbacks(t *testing.T) {
	one, full := EndOf{postDone, "k-1"}, EndOf{postDead, "full"}
	for _, c := range []struct {
		name   string
		spoil  func(e *Evidence)
		breaks []string
	}{
		{"all well", func(*Evidence) {}, nil},
		{"a result posted twice", func(e *Evidence) { e.Posted[one]["job.done k-1"]++ }, nil},
		{"a result that was not posted", func(e *Evidence) { delete(e.Posted, one) }, []string{"callbacks"}},
		{"a refused job's letter that was not posted", func(e *Evidence) { delete(e.Posted, full) }, []string{"callbacks"}},
		{"two letters, one of them posted", func(e *Evidence) {
			e.Ends.Letters = append(e.Ends.Letters, Letter{Job: "full", Reason: "overflow"})
		}, []string{"callbacks"}},
		{"a result posted under two ids", func(e *Evidence) { e.Posted[one]["another"] = 1 }, []string{"callbacks"}},
		{"two results under one id", func(e *Evidence) {
			e.Posted[one] = map[string]int{"job.done k-2": 1}
		}, []string{"callbacks"}},
		{"a post without an end", func(e *Evidence) {
			e.Posted[EndOf{postDead, "k-1"}] = map[string]int{"id": 1}
		}, []string{"callbacks"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := posted()
			c.spoil(e)
			var names []string
			for _, f := range Judge(e).Findings {
				if f.Outcome != bucket.Pass {
					names = append(names, f.Name)
				}
			}
			if !slices.Equal(names, c.breaks) {
				t.Errorf("broken: %q, want %q", names, c.breaks)
			}
		})
	}
	if e := posted(); Missing(e.Ends, e.Posted) != 0 || Missing(e.Ends, Posts{}) != 12 {
		t.Error("it is not known which ends have been posted")
	}
}

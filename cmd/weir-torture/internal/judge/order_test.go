package judge

import (
	"testing"

	"weir/bucket"
)

// TestJudgePriorities checks that a job may pass less urgent ones of its key, but none of its own priority.
func TestJudgePriorities(t *testing.T) {
	for _, c := range []struct {
		name               string
		second, third      bucket.Priority // of jobs that are called in turn, although the third came first
		outOfOrder, passed int
	}{
		{"a high job passes a low one", bucket.High, bucket.Low, 0, 1},
		{"a low job before a high one, in its turn", bucket.Low, bucket.High, 0, 0},
		{"a high job passes a high one", bucket.High, bucket.High, 1, 0},
		{"a low job passes a low one", bucket.Low, bucket.Low, 1, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := right(false)
			e.Options.Priorities = true
			e.Kills = nil
			e.Receipts[2].Priority, e.Receipts[3].Priority = c.second, c.third
			e.Receipts[2].Seq, e.Receipts[3].Seq = 6, 4
			if r := Judge(e); r.OutOfOrder != c.outOfOrder || r.Passed != c.passed || r.Kept() != (c.outOfOrder == 0) {
				t.Errorf("%d out of order, %d passed, kept %v: %+v", r.OutOfOrder, r.Passed, r.Kept(), r.Findings)
			}
		})
	}
}

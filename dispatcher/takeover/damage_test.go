package takeover

import "testing"

// TestLostJobThatMayHaveBegun checks when a lost job is reported as not billed: only if it has no intent, or if its
// sequence is unknown and no missing job has one.
func TestLostJobThatMayHaveBegun(t *testing.T) {
	begun := map[uint64]bool{3: true, 4: false}
	for seq, want := range map[uint64]bool{3: true, 4: false, 5: false, 0: true} {
		if got := mayHaveBegun(seq, begun); got != want {
			t.Errorf("job %d: %v, want %v", seq, got, want)
		}
	}
	if mayHaveBegun(0, map[uint64]bool{4: false}) {
		t.Error("a job is taken for begun though no intent tells so")
	}
}

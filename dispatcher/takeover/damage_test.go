package takeover

import "testing"

// TestLostJobThatMayHaveBegun checks that a lost job is reported as not billed only if no job that it may be has an
// intent.
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

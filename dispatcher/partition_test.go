package dispatcher

import "testing"

// TestLostPartitionMayCallNothing checks that a lost partition makes no calls, even while its lease is still valid.
func TestLostPartitionMayCallNothing(t *testing.T) {
	p := &partition{}
	if !p.mayCall() {
		t.Fatal("a partition that nobody else can own may not be called")
	}
	p.lost.Store(true)
	if p.mayCall() {
		t.Error("a partition that is lost may be called")
	}
}

package lane

import "testing"

// TestLostPartitionMayCallNothing checks that a lost partition makes no calls, even while its lease is still valid.
func TestLostPartitionMayCallNothing(t *testing.T) {
	p := &Owned{}
	if !p.MayCall() {
		t.Fatal("a partition that no other replica can own may not be called")
	}
	p.Lost.Store(true)
	if p.MayCall() {
		t.Error("a partition that is lost may be called")
	}
}

package schedule

import (
	"testing"

	"weir/bucket"
)

// TestKeyPace checks that GoOnFrom never sets a pace back, that asks report the pace to the store until it answers with
// a grant, and that other rules leave it no more than a full bucket.
func TestKeyPace(t *testing.T) {
	p := keyPace{TAT: 100}
	if p.untold() != 0 {
		t.Error("the store must be told what it said itself")
	}
	p.GoOnFrom(50)
	if p.TAT != 100 || p.untold() != 100 {
		t.Errorf("after an earlier pace: %+v", p)
	}
	p.slip(bucket.Grant{At: 90, TAT: 120}, 95) // it left 5 late
	if p.takeSlip(); p.TAT != 125 || p.slipped != 0 || p.untold() != 125 {
		t.Errorf("after a call that left 5 late: %+v", p)
	}
	if p.confirm(130); p.TAT != 130 || p.untold() != 0 {
		t.Errorf("after a grant: %+v", p)
	}
	p.Remind(140)
	p.refused(ownRate, 200)
	if p.lower(110, 105); p.TAT != 110 || p.floor != 105 || p.askAt != 0 {
		t.Errorf("after other rules: %+v", p)
	}
}

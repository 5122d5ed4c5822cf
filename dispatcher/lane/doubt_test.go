package lane

import (
	"testing"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
)

// TestDoubt checks that a job may be called while no earlier call may have been processed, and after that only under
// the same identity.
func TestDoubt(t *testing.T) {
	keyed := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Key"}}
	other := &httpcall.API{Idempotency: &httpcall.Idempotency{Header: "Other"}}
	none := &httpcall.API{}
	for _, c := range []struct {
		what               string
		history            func(d *Doubt)
		keyed, other, none bool
	}{
		{"nothing", func(*Doubt) {}, true, true, true},
		{"pushed back", func(d *Doubt) { d.Add(deadletter.NotBilled, keyed.KeyIdentity()) }, true, true, true},
		{"in doubt", func(d *Doubt) { d.Add(deadletter.BilledUnknown, keyed.KeyIdentity()) }, true, false, false},
		{"charged", func(d *Doubt) { d.Add(deadletter.BilledYes, keyed.KeyIdentity()) }, true, false, false},
		{"in doubt without a key", func(d *Doubt) { d.Add(deadletter.BilledUnknown, "") }, false, false, false},
		{"in doubt, under an unknown key", func(d *Doubt) { d.Recall(deadletter.BilledUnknown, "") }, true, true, false},
		{"in doubt, then pushed back under another key", func(d *Doubt) {
			d.Add(deadletter.BilledUnknown, keyed.KeyIdentity())
			d.Add(deadletter.NotBilled, other.KeyIdentity())
		}, true, false, false},
		{"in doubt under two keys", func(d *Doubt) {
			d.Recall(deadletter.BilledUnknown, keyed.KeyIdentity())
			d.Recall(deadletter.BilledUnknown, other.KeyIdentity())
		}, false, false, false},
	} {
		var d Doubt
		c.history(&d)
		if d.Allows(keyed) != c.keyed || d.Allows(other) != c.other || d.Allows(none) != c.none {
			t.Errorf("%s: under its key %v, under another %v, under none %v", c.what, d.Allows(keyed), d.Allows(other), d.Allows(none))
		}
	}
}

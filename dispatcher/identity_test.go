package dispatcher

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
		history            func(d *doubt)
		keyed, other, none bool
	}{
		{"nothing", func(*doubt) {}, true, true, true},
		{"pushed back", func(d *doubt) { d.add(deadletter.NotBilled, keyed.KeyIdentity()) }, true, true, true},
		{"in doubt", func(d *doubt) { d.add(deadletter.BilledUnknown, keyed.KeyIdentity()) }, true, false, false},
		{"charged", func(d *doubt) { d.add(deadletter.BilledYes, keyed.KeyIdentity()) }, true, false, false},
		{"in doubt without a key", func(d *doubt) { d.add(deadletter.BilledUnknown, "") }, false, false, false},
		{"in doubt, nobody knows under which key", func(d *doubt) { d.recall(deadletter.BilledUnknown, "") }, true, true, false},
		{"in doubt, then pushed back under another key", func(d *doubt) {
			d.add(deadletter.BilledUnknown, keyed.KeyIdentity())
			d.add(deadletter.NotBilled, other.KeyIdentity())
		}, true, false, false},
		{"in doubt under two keys", func(d *doubt) {
			d.recall(deadletter.BilledUnknown, keyed.KeyIdentity())
			d.recall(deadletter.BilledUnknown, other.KeyIdentity())
		}, false, false, false},
	} {
		var d doubt
		c.history(&d)
		if d.allows(keyed) != c.keyed || d.allows(other) != c.other || d.allows(none) != c.none {
			t.Errorf("%s: under its key %v, under another %v, under none %v", c.what, d.allows(keyed), d.allows(other), d.allows(none))
		}
	}
}

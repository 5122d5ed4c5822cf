package recovery_test

import (
	"testing"

	"weir/dispatcher/recovery"
)

// TestMend tries every possible Open: the job is called again only under a key by which the api knows the call.
func TestMend(t *testing.T) {
	for _, c := range []struct {
		what string
		open recovery.Open
		want recovery.Remedy
	}{
		{"a lost call without a key", recovery.Open{}, recovery.Parks},
		{"a lost call under a key", recovery.Open{Keyed: true, Same: true}, recovery.Repeats},
		{"a lost call under a key that the api does not take any more", recovery.Open{Keyed: true}, recovery.Parks},
		{"the last of many lost calls", recovery.Open{Keyed: true, Same: true, Poisonous: true}, recovery.GivesUp},
		{"the same, and the api takes other keys", recovery.Open{Keyed: true, Poisonous: true}, recovery.GivesUp},
		{"the last of many lost calls, without a key", recovery.Open{Poisonous: true}, recovery.Parks},
	} {
		if got := recovery.Mend(c.open); got != c.want {
			t.Errorf("%s: %+v is %d, want %d", c.what, c.open, got, c.want)
		}
	}
	for n := range 1 << 3 {
		o := recovery.Open{Keyed: n&1 != 0, Same: n&2 != 0, Poisonous: n&4 != 0}
		if recovery.Mend(o) == recovery.Repeats && (!o.Same || !o.Keyed || o.Poisonous) {
			t.Errorf("%+v is called again", o)
		}
	}
}

package problem

import "testing"

func TestClosest(t *testing.T) {
	names := []string{"rate", "burst", "capacity", "max_wait", "in_flight", "quota", "tz"}
	for typed, want := range map[string]string{
		"capcity": "capacity", "rates": "rate", "Rate": "rate", "brust": "burst", "inflight": "in_flight",
		"maxwait": "max_wait", "timezone": "", "x": "", "": "", "quotas": "quota", "tx": "",
	} {
		if got := Closest(typed, names); got != want {
			t.Errorf("%q is taken for %q, want %q", typed, got, want)
		}
	}
}

package deadletter

import (
	"testing"
	"time"
)

// TestKeyed checks what is the same key, which of two the api forgets first, and from when it counts as forgotten.
func TestKeyed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	early, late := KeyedUntil("Key@ab", now.Add(2*time.Minute)), KeyedUntil("Key@ab", now.Add(time.Hour))
	for _, c := range []struct {
		a, b    string
		same    bool
		earlier string
	}{
		{early, late, true, early},
		{late, early, true, early},
		{"Key@ab", late, true, late},
		{late, "Key@ab", true, late},
		{"", late, false, late},
		{late, "", false, late},
		{"Key@ab", "Key@cd", false, "Key@ab"},
		{early, KeyedUntil("Key@cd", now), false, KeyedUntil("Key@cd", now)},
		{"X~1@ab", KeyedUntil("X~1@ab", now), true, KeyedUntil("X~1@ab", now)},
	} {
		if got := SameKey(c.a, c.b); got != c.same {
			t.Errorf("%s and %s are the same: %v", c.a, c.b, got)
		}
		if got := EarlierKey(c.a, c.b); got != c.earlier {
			t.Errorf("of %q and %q the api forgets %q first, want %q", c.a, c.b, got, c.earlier)
		}
	}
	for identity, want := range map[string][2]bool{early: {false, true}, late: {false, false}, "Key@ab": {false, false}, "": {false, false}} {
		if got := [2]bool{KeyForgotten(identity, now), KeyForgotten(identity, now.Add(time.Minute))}; got != want {
			t.Errorf("%q is forgotten now and a minute later: %v, want %v", identity, got, want)
		}
	}
}

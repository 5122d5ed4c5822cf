package deadletter

import (
	"testing"
	"time"
)

// TestKeyed checks which identities have the same key, and which of two calls began first.
func TestKeyed(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	early, late := KeyedSince("Key@ab", now), KeyedSince("Key@ab", now.Add(time.Hour))
	for _, c := range []struct {
		a, b    string
		same    bool
		earlier string
	}{
		{early, late, true, early},
		{late, early, true, early},
		{"Key@ab", late, true, "Key@ab"},
		{late, "Key@ab", true, "Key@ab"},
		{"", late, false, late},
		{late, "", false, late},
		{"", "", true, ""},
		{"Key@ab", "Key@cd", false, "Key@ab"},
		{early, KeyedSince("Key@cd", now), false, early},
		{"X~1@ab", KeyedSince("X~1@ab", now), true, "X~1@ab"},
		{"Key@ab~", early, false, "Key@ab~"},
	} {
		if got := SameKey(c.a, c.b); got != c.same {
			t.Errorf("%s and %s are the same: %v", c.a, c.b, got)
		}
		if got := EarlierKey(c.a, c.b); got != c.earlier {
			t.Errorf("of %q and %q the first is %q, want %q", c.a, c.b, got, c.earlier)
		}
	}
	if got := UntimedKey(KeyedSince("X~1@ab", now)); got != "X~1@ab" {
		t.Errorf("without its time the key is %q", got)
	}
}

// TestKeyForgotten checks from which time on a key counts as forgotten. An api that knows keys for a time may forget
// one that long after the second in which the call began, and at any time if that second is unknown. An api that always
// knows keys forgets none.
func TestKeyForgotten(t *testing.T) {
	began := time.Unix(1_800_000_000, 999_999_999)
	for _, c := range []struct {
		identity string
		knows    time.Duration
		after    time.Duration // after the call began
		want     bool
	}{
		{KeyedSince("Key@ab", began), 0, 1000 * time.Hour, false},
		{KeyedSince("Key@ab", began), time.Hour, 59 * time.Minute, false},
		{KeyedSince("Key@ab", began), time.Hour, time.Hour - time.Second, false},
		{KeyedSince("Key@ab", began), time.Hour, time.Hour - time.Second + time.Nanosecond, true},
		{KeyedSince("Key@ab", began), 24 * time.Hour, time.Hour, false},
		{"Key@ab", 0, 0, false},
		{"Key@ab", 24 * time.Hour, 0, true},
		{"", 24 * time.Hour, 0, true},
	} {
		if got := KeyForgotten(c.identity, c.knows, began.Add(c.after)); got != c.want {
			t.Errorf("%q, known for %s, is forgotten after %s: %v", c.identity, c.knows, c.after, got)
		}
	}
}

package deadletter

import (
	"strconv"
	"strings"
	"time"
)

// A keyed call is one that carried an idempotency key. Its identity says how it carried the key, and to which place. If
// the api forgets keys, the identity ends in the second until which the api surely knows this one: NAME@PLACE~SECOND.

// KeyedUntil returns the identity of a call whose key the api knows until a time.
func KeyedUntil(identity string, until time.Time) string {
	return identity + "~" + strconv.FormatInt(until.Unix(), 10)
}

// knownUntil separates an identity from the time until which the api knows the key. forgets is false if it always does.
func knownUntil(identity string) (key string, until time.Time, forgets bool) {
	at := strings.LastIndexByte(identity, '~')
	if at < strings.LastIndexByte(identity, '@') {
		return identity, until, false // the name of a header may have the letter, too
	}
	seconds, err := strconv.ParseInt(identity[at+1:], 10, 64)
	if err != nil {
		return identity, until, false
	}
	return identity[:at], time.Unix(seconds, 0), true
}

// SameKey reports whether two calls of a job carried the same key to the same place, whether or not the api still knows
// it.
func SameKey(a, b string) bool {
	a, _, _ = knownUntil(a)
	b, _, _ = knownUntil(b)
	return a == b
}

// EarlierKey returns that of two identities of the same key which the api forgets first, or the one that is known.
func EarlierKey(a, b string) string {
	if a == "" {
		return b
	}
	_, untilA, forgetsA := knownUntil(a)
	_, untilB, forgetsB := knownUntil(b)
	if forgetsB && (!forgetsA || untilB.Before(untilA)) {
		return b
	}
	return a
}

// keyMargin is how long before an api forgets a key weir no longer repeats a call under it: the call must arrive in time.
const keyMargin = time.Minute

// KeyForgotten reports whether the api may have forgotten the key of a call when another one of its job would arrive.
func KeyForgotten(identity string, now time.Time) bool {
	_, until, forgets := knownUntil(identity)
	return forgets && !now.Add(keyMargin).Before(until)
}

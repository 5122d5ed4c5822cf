package deadletter

import (
	"strconv"
	"strings"
	"time"
)

// A keyed call is one that carried an idempotency key. Its identity says how it carried the key, to which place, and in
// which second it began: NAME@PLACE~SECOND. From then on the api may know the key, and an api that forgets keys counts
// from then on. How long it knows them is a term of the present configuration and no part of the identity: an operator
// who corrects it corrects it for the calls that were made before, too.

// KeyMargin is how long before an api forgets a key weir no longer repeats a call under it: the call must arrive in
// time.
const KeyMargin = time.Minute

// KeyedSince returns the identity of a call that began at a time.
func KeyedSince(identity string, began time.Time) string {
	return identity + "~" + strconv.FormatInt(began.Unix(), 10)
}

// keyedSince separates an identity from the time at which its call began, which is zero if the identity does not say.
func keyedSince(identity string) (key string, began time.Time) {
	at := strings.LastIndexByte(identity, '~')
	if at < strings.LastIndexByte(identity, '@') {
		return identity, began // the name of a header may have the letter, too
	}
	seconds, err := strconv.ParseInt(identity[at+1:], 10, 64)
	if err != nil {
		return identity, began
	}
	return identity[:at], time.Unix(seconds, 0)
}

// UntimedKey returns an identity without the time of its call.
func UntimedKey(identity string) string {
	key, _ := keyedSince(identity)
	return key
}

// SameKey reports whether two calls of a job carried the same key to the same place, whenever they began.
func SameKey(a, b string) bool { return UntimedKey(a) == UntimedKey(b) }

// EarlierKey returns that of two identities of the same key whose call began first, or the one that is known. A call
// whose time is unknown counts as the first.
func EarlierKey(a, b string) string {
	_, beganA := keyedSince(a)
	_, beganB := keyedSince(b)
	if a == "" || b != "" && beganB.Before(beganA) {
		return b
	}
	return a
}

// KeyForgotten reports whether an api that knows a key for a time, 0 for always, may have forgotten the key of a call
// when another call of its job arrives.
func KeyForgotten(identity string, knows time.Duration, arrives time.Time) bool {
	if knows == 0 {
		return false
	}
	_, began := keyedSince(identity)
	return began.IsZero() || !arrives.Before(began.Add(knows))
}

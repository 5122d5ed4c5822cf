package deadletter

import (
	"strconv"
	"strings"
	"time"
)

// A keyed call is one that carried an idempotency key. Its identity says how it carried the key, to which place, and in
// which second it began: NAME@PLACE~SECOND. The api may know the key from that second on, and an api that forgets keys
// forgets this one a fixed time later. That time is a term of the present configuration, not a part of the identity. So
// if an operator corrects it, the correction applies to earlier calls, too.

// KeyMargin is the time that a repeated call has to arrive. Weir relies on no key that the api forgets sooner than
// that.
const KeyMargin = time.Minute

// KeyedSince adds the time at which a call began to an identity.
func KeyedSince(identity string, began time.Time) string {
	return identity + "~" + strconv.FormatInt(began.Unix(), 10)
}

// keyedSince splits an identity into the key and the time at which its call began. The time is zero if the identity has
// none.
func keyedSince(identity string) (key string, began time.Time) {
	at := strings.LastIndexByte(identity, '~')
	if at < strings.LastIndexByte(identity, '@') {
		return identity, began // a tilde in the name of a header
	}
	seconds, err := strconv.ParseInt(identity[at+1:], 10, 64)
	if err != nil {
		return identity, began
	}
	return identity[:at], time.Unix(seconds, 0)
}

// UntimedKey returns an identity without its time.
func UntimedKey(identity string) string {
	key, _ := keyedSince(identity)
	return key
}

// SameKey reports whether two calls of a job carried the same key to the same place, at any time.
func SameKey(a, b string) bool { return UntimedKey(a) == UntimedKey(b) }

// EarlierKey returns, of two identities of the same key, the one whose call began first, or the one that is not "". An
// identity without a time counts as earlier.
func EarlierKey(a, b string) string {
	_, beganA := keyedSince(a)
	_, beganB := keyedSince(b)
	if a == "" || b != "" && beganB.Before(beganA) {
		return b
	}
	return a
}

// KeyForgotten reports whether the api may have forgotten the key of a call when another call of the job arrives. knows
// is how long the api knows a key; 0 means always.
func KeyForgotten(identity string, knows time.Duration, arrives time.Time) bool {
	if knows == 0 {
		return false
	}
	_, began := keyedSince(identity)
	return began.IsZero() || !arrives.Before(began.Add(knows))
}

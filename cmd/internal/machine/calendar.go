package machine

import (
	"fmt"
	"time"
)

// Noon returns a time zone in which it is about noon, so that no day, week or month ends there while a test runs.
func Noon() string { return noonAt(time.Now()) }

func noonAt(now time.Time) string {
	switch east := 12 - now.UTC().Hour(); {
	case east > 0:
		return fmt.Sprintf("Etc/GMT-%d", east) // in these names, minus means east
	case east < 0:
		return fmt.Sprintf("Etc/GMT+%d", -east)
	default:
		return "Etc/GMT"
	}
}

// longestTest bounds the duration of a test in which no period may end.
const longestTest = 10 * time.Minute

// Lasting returns a length for fixed windows, at least least, such that no window ends while a test runs. Fixed windows
// are counted from 1970.
func Lasting(least time.Duration) time.Duration { return lastingAt(time.Now(), least) }

func lastingAt(now time.Time, least time.Duration) time.Duration {
	per := least
	for per-now.Sub(time.Unix(0, 0))%per < longestTest {
		per += least/10 + longestTest
	}
	return per
}

// AwaitDay waits for midnight UTC if less than least is left of the day. Afterwards "today" in a report means the day
// on which the test began.
func AwaitDay(least time.Duration) {
	now := time.Now().UTC()
	if left := now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now); left < least {
		<-time.After(left)
	}
}

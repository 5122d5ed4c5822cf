package fakeapi

import "time"

// clock returns nanoseconds since the ledger began, on the monotonic clock. It never changes, and is safe for
// concurrent use.
type clock struct {
	base   time.Time     // of this process, with its monotonic reading
	offset time.Duration // of base since the ledger began
}

func (c clock) now() int64 { return int64(c.offset + time.Since(c.base)) }

// instant is a moment by the wall clock and by the machine's monotonic clock, so that a later process can tell how long
// ago it was.
type instant struct {
	wall time.Time
	boot string        // identifies the machine's boot; "" if unknown
	mono time.Duration // the machine's monotonic clock
}

func instantNow() instant {
	boot, mono := machineClock()
	return instant{wall: time.Now(), boot: boot, mono: mono}
}

// since returns the time since an earlier instant: by the monotonic clock within one boot of the machine, else by the
// wall clock.
func (i instant) since(earlier instant) time.Duration {
	if i.boot != "" && i.boot == earlier.boot {
		return i.mono - earlier.mono
	}
	return i.wall.Sub(earlier.wall)
}

package fakeapi

import "time"

// clock returns the nanoseconds since the ledger began, by the monotonic clock. Its fields never change, and it is safe
// for concurrent use.
type clock struct {
	base   time.Time     // of this process, with its monotonic reading
	offset time.Duration // how long after the ledger's beginning base is
}

func (c clock) now() int64 { return int64(c.offset + time.Since(c.base)) }

// instant is a moment by the wall clock and by the machine's monotonic clock. With it a later process can tell how long
// ago the moment was.
type instant struct {
	wall time.Time
	boot string        // identifies the machine's boot; "" if unknown
	mono time.Duration // the machine's monotonic clock
}

func instantNow() instant {
	boot, mono := machineClock()
	return instant{wall: time.Now(), boot: boot, mono: mono}
}

// since returns the time since an earlier instant. Within one boot of the machine it uses the monotonic clock,
// otherwise the wall clock.
func (i instant) since(earlier instant) time.Duration {
	if i.boot != "" && i.boot == earlier.boot {
		return i.mono - earlier.mono
	}
	return i.wall.Sub(earlier.wall)
}

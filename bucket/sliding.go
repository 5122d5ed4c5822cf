package bucket

import "sort"

// slidingMeter allows at most count units in ANY window of the quota's length. It remembers when units were granted,
// and lets a new one in when enough of them are as old as the window and the jitter together (the older may have
// arrived late, the newer may arrive at once).
//
// Memory is bounded: up to maxEntries units every grant has its own entry and the count is exact. A larger quota puts
// grants that lie closer together than 1/maxEntries of the window into one entry that ages with its youngest. That
// never lets more pass. It lets a unit pass later by at most that 1/1024 of the window, so 0.1 % of the quota is lost
// at worst. With what overages add, there are never more than 2*maxEntries+2 entries of 24 bytes in a window's length.
// Slots reserved ahead add the part that the horizon is of a window.
//
// Slots need not be given in the order of time. Every entry that is not yet too old for the new slot counts, also one
// that lies after it. Entries stay in order because a late slot gets the time of the newest. So recorded times are
// never before the real ones, and when the last call of a window was granted, all the other calls of the window were
// counted.
type slidingMeter struct {
	count   int64 // headroom taken off
	life    Micros
	grain   Micros // entries closer together than this are one
	entries []entry
	former  int // the first entries, which former processes may have used, until Correct
	sum     int64
	gone    Micros // the latest end of an entry that no longer counts
}

// entry is units granted between start and end.
type entry struct {
	start, end Micros
	units      int64
}

const maxEntries = 1024

func newSlidingMeter(r Rules, q Quota) *slidingMeter {
	m := &slidingMeter{count: r.Lowered(q.Count)}
	m.life, m.grain = r.SlidingBounds(q)
	return m
}

// SlidingBounds returns how long a unit of a sliding quota counts under these rules, and how close together two grants
// must lie to be kept as one.
func (r Rules) SlidingBounds(q Quota) (life, grain Micros) {
	life = Micros(ceilMicros(q.Per) + ceilMicros(r.Jitter))
	if r.Lowered(q.Count) > maxEntries {
		grain = Micros(ceilDiv(int64(life), maxEntries))
	}
	return life, grain
}

// advance drops entries that no longer count.
func (m *slidingMeter) advance(now Micros) {
	i := 0
	for i < len(m.entries) && m.entries[i].end+m.life <= now {
		m.sum, m.gone = m.sum-m.entries[i].units, max(m.gone, m.entries[i].end)
		i++
	}
	m.entries, m.former = m.entries[i:], max(0, m.former-i)
}

func (m *slidingMeter) earliest(at Micros, cost int64) Micros {
	free := m.count - m.sum
	for _, e := range m.entries {
		if free >= cost && e.end+m.life > at {
			break
		}
		at = max(at, e.end+m.life)
		free += e.units
	}
	return at
}

func (m *slidingMeter) take(at Micros, cost, _ int64) {
	m.sum += cost
	if n := len(m.entries); n > 0 {
		newest := &m.entries[n-1]
		at = max(at, newest.end)
		if at-newest.start < m.grain && n > m.former {
			newest.end, newest.units = at, newest.units+cost
			return
		}
	}
	m.entries = append(m.entries, entry{at, at, cost})
}

// giveBack takes units out of the first entry that ends at or after their slot. That is the entry they were put into,
// or an older one. Taking from an older one leaves the rest recorded later than it was, which is safe. If the units may
// no longer count, it takes nothing: the first entry then holds other calls' units.
func (m *slidingMeter) giveBack(at Micros, cost, _ int64) {
	if at <= m.gone {
		return
	}
	own := m.entries[min(m.former, len(m.entries)):]
	i := sort.Search(len(own), func(i int) bool { return own[i].end >= at })
	if i < len(own) {
		cost = min(cost, own[i].units)
		own[i].units -= cost
		m.sum -= cost
	}
}

// correct books an overage as used now: the call was made, so the next ones wait for it.
func (m *slidingMeter) correct(now, at Micros, cost, actual, serial int64) {
	if actual < cost {
		m.giveBack(at, cost-actual, serial)
		return
	}
	m.take(now, min(int64(maxMicros)-m.sum, actual-cost), serial)
}

// adopt counts the units that a quota of the same name had used in its period. When in the period is unknown, so now is
// assumed. What was used before the period is not among them.
func (m *slidingMeter) adopt(now Micros, period span, used int64) {
	m.gone = max(m.gone, period.start-1)
	if used > 0 && now < period.end+m.life {
		m.take(min(now, period.end), used, 0)
	}
}

package bucket

import (
	"slices"
	"sort"
)

// slidingMeter allows at most count units in ANY window of the quota's length. It remembers when units were granted. It
// grants a new unit when enough old ones are as old as the window and the jitter together: an old call may have arrived
// late, and the new one may arrive at once.
//
// Memory is bounded. In a quota of up to maxEntries units every grant has its own entry, and the count is exact. A
// larger quota puts grants that lie closer together than 1/maxEntries of the window into one entry, which ages with its
// youngest grant. So no more units pass than the quota allows. A unit may pass later by 1/1024 of the window, which
// loses at most 0.1 % of the quota. With overages, a window's length has at most 2*maxEntries+2 entries of 24 bytes.
// Slots reserved ahead of now add entries in proportion to the horizon. An entry whose units were all given back is
// dropped at once, so calls that were not made leave nothing.
//
// Slots need not be granted in the order of time. Every entry that is not too old for the new slot counts, even an
// entry after the slot. A slot before the newest entry is recorded at the newest entry's time, so entries stay in
// order. No recorded time is before the real one, so the last grant of any window has counted all other calls of the
// window.
type slidingMeter struct {
	count   int64 // less the headroom
	life    Micros
	grain   Micros // entries closer together than this are one
	entries []entry
	former  int // how many of the first entries former processes may have used; 0 after Correct
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
	if cost == 0 {
		return
	}
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

// giveBack takes units out of the first entry that ends at or after their slot. That is the entry that holds them, or
// an older one. If it is older, the remaining units are recorded later than they were granted, which is safe. If the
// units may no longer count, it takes nothing: the first entry then holds other calls' units. If the entry that held
// them is gone, an earlier call emptied it and left its own units in a later entry.
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
		if own[i].units == 0 {
			i += len(m.entries) - len(own)
			m.entries = slices.Delete(m.entries, i, i+1)
		}
	}
}

// correct gives back units that the call did not use. It books an overage as used now: the call was made, so the next
// ones wait for it.
func (m *slidingMeter) correct(now, at Micros, cost, actual, serial int64) {
	if actual < cost {
		m.giveBack(at, cost-actual, serial)
		return
	}
	m.take(now, min(int64(maxMicros)-m.sum, actual-cost), serial)
}

// adopt counts the units that a calendar or fixed quota of the same name has used in its period. The times of their use
// are unknown, so adopt assumes now. Units used before the period are unknown here.
func (m *slidingMeter) adopt(now Micros, period span, used int64) {
	m.gone = max(m.gone, period.start-1)
	if used > 0 && now < period.end+m.life {
		m.take(min(now, period.end), used, 0)
	}
}

package bucket

import "time"

// The use of former processes.
//
// A restored quota counts what its snapshot claims. That is more than was used: it includes what the dead process might
// have used until its next snapshot. So the restored count is an upper bound. While the bound is in force, the limit
// lets pass what the bound leaves, buries no job, and holds no job for long. When the records of all calls of former
// processes are known, Correct replaces the bound by their units; this process's own grants still count. So if
// processes are killed one after the other, their claims never add up.

// boundPoll is how long a call waits before it asks again if perhaps only such a bound holds it. A job stays ready for
// less time than that. So no job with a stored intent waits until the bound is replaced.
const boundPoll = Micros(300 * time.Millisecond / time.Microsecond)

// Account returns the present counts of the limits. These include the units of calls under way, and bounds in force.
func (m *Memory) Account() *Account {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.engine.tick(m.now())
	var limits []LimitSnapshot
	a := NewAccount(m.engine.own())
	for i := range m.engine.shared {
		if l := &m.engine.shared[i]; l.accounted() {
			limits = append(limits, l.snapshot(now, now, 0))
		}
	}
	for i, l := range (Snapshot{Limit: limits}).moved(m.engine.ahead).Limit {
		of := &a.Limits[i]
		of.Start, of.End, of.Used, of.Log = l.Start, l.End, l.Used, l.Log
	}
	return a
}

// Rules returns the rules in force, without the limits that a pool counts.
func (m *Memory) Rules() Rules {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.engine.own()
}

func (e *engine) own() Rules {
	rules := e.rules
	rules.Shared = e.counted(rules)
	return rules
}

// Bounds returns, by the limit's name, how many units a limit counts for former processes whose exact use is not known.
func (m *Memory) Bounds() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	bounds := map[string]int64{}
	for i := range m.engine.shared {
		l := &m.engine.shared[i]
		if !l.bound {
			continue
		}
		switch m := l.meter.(type) {
		case *quotaMeter:
			bounds[l.Name] = m.former
		case *slidingMeter:
			bounds[l.Name] = m.formerUnits()
		}
	}
	return bounds
}

// Correct replaces the restored bounds by the exact use of former processes, which former has from the records of their
// calls. A limit keeps its bound for good if former lacks the limit, or counts it in other periods. former may be nil.
func (m *Memory) Correct(former *Account) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.engine
	now := e.tick(m.now())
	for i := range e.shared {
		l := &e.shared[i]
		if !l.bound {
			continue
		}
		l.bound = false
		if of := former.Of(l.Name); of != nil && of.By == l.quota().by() {
			l.correctFormer(now, of, e.ahead)
		}
	}
}

func (l *sharedLimit) correctFormer(now Micros, of *LimitAccount, ahead Micros) {
	switch m := l.meter.(type) {
	case *quotaMeter:
		m.correctFormer(now, span{of.Start, of.End}.moved(-ahead), of.Used)
	case *slidingMeter:
		entries := make([]entry, len(of.Log))
		for i, e := range of.Log {
			at := Micros(e[0]) - ahead
			entries[i] = entry{at, at, e[1]}
		}
		m.correctFormer(entries)
	}
}

// correctFormer replaces the bound by used, which former processes used in the period p. If the calendar was set back
// after an account was made, the account does not cover the present period: the bound stays.
func (m *quotaMeter) correctFormer(now Micros, p span, used int64) {
	switch {
	case p.start > now+early:
	case p.start > m.period.start: // this process has granted nothing in it
		m.begin(p)
		m.used = max(m.used, used)
	case p.start < m.period.start: // they used nothing in the present period
		m.used = max(0, m.used-m.former)
	default:
		m.used = max(0, m.used-m.former+used)
	}
	m.former = 0
}

// formerUnits returns the units in the entries of former processes.
func (m *slidingMeter) formerUnits() (units int64) {
	for _, e := range m.entries[:m.former] {
		units += e.units
	}
	return units
}

// correctFormer replaces the entries of former processes. Those of this process keep their times, or get later ones.
func (m *slidingMeter) correctFormer(entries []entry) {
	own := m.entries[m.former:]
	m.entries, m.former, m.sum = entries, 0, 0
	newest := Micros(0)
	for _, e := range entries {
		m.sum += e.units
		newest = e.end
	}
	for _, e := range own {
		e.end = max(e.end, newest)
		e.start = min(e.start, e.end)
		m.sum += e.units
		m.entries = append(m.entries, e)
	}
}

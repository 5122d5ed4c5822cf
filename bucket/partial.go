package bucket

import "maps"

// Limits that come into force within their period.
//
// A quota or budget that is new to the rules has not seen the earlier calls. The API may have counted them
// nevertheless. If the limit was in the rules before, in the same period, the API certainly has. A caller that keeps a
// record of all calls says so with ExpectSums. Such a limit is then partial, and nothing is granted while a partial
// limit is in force. When all earlier calls have their records, FillIn sets how much they took. A shadow limit stays
// partial, in snapshots too, and is added up when it is put in force.

// ExpectSums announces that the caller will use FillIn for limits that are new to the rules. s is the restored
// snapshot. called says that the api may have been called before: limits that s lacks then count as new. A shadow limit
// counts as new too, unless s was made at an orderly stop: other snapshots do not cover what a shadow limit counted
// after they were made. ExpectSums must be called after Restore and before the first Reserve.
func (m *Memory) ExpectSums(s Snapshot, called bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.engine
	e.sums = true
	if called && len(s.Limit) == 0 { // no snapshot says until when
		now := e.tick(m.now())
		e.arrived = max(e.arrived, now+Micros(ceilMicros(e.rules.Jitter)))
		for i := range e.shared {
			e.shared[i].owe(now, e.arrived, e.asked)
		}
	}
	stored := map[string]bool{}
	orderly := s.Until <= s.Made
	for _, l := range s.Limit {
		stored[l.Name] = l.accounted() && (orderly || !l.Shadow)
		if l.accounted() && !e.accounts(l.Name) {
			e.claims.dropped++
		}
	}
	for i := range e.shared {
		if l := &e.shared[i]; called && l.accounted() && !stored[l.Name] {
			l.partial, l.since = true, e.applied
		}
	}
}

// accounted reports whether the snapshot is of a quota or a budget. It does not rely on By alone, which a snapshot that
// was added up from the ledger lacks.
func (s *LimitSnapshot) accounted() bool { return s.By != "" || s.End != 0 || len(s.Log) > 0 }

// accounts reports whether the rules have a quota or budget with this name.
func (e *engine) accounts(name string) bool {
	for i := range e.shared {
		if l := &e.shared[i]; l.Name == name {
			return l.accounted()
		}
	}
	return false
}

// noteDropped stops grants until a snapshot of the next rules is stored, if these lack a quota or budget, or count a
// shared rate in another pace. The stored snapshot does not bound the calls that such a change allows.
func (e *engine) noteDropped(next Rules) {
	if e.claims != nil && !maps.Equal(e.rules.sharedPaces(), next.sharedPaces()) {
		e.claims.dropped++
	}
	if !e.sums {
		return
	}
	kept := map[string]bool{}
	for i := range next.Shared {
		kept[next.Shared[i].Name] = next.Shared[i].accounted()
	}
	for i := range e.shared {
		if l := &e.shared[i]; l.accounted() && !kept[l.Name] {
			e.claims.dropped++
		}
	}
}

// sharedPaces returns the paces of the shared rates in force, by name. Shadow rates are not in force.
func (r Rules) sharedPaces() map[string]pace {
	paces := map[string]pace{}
	for _, l := range r.Shared {
		if l.Rate != nil && !l.Shadow {
			paces[l.Name] = r.By(&l).pace(*l.Rate)
		}
	}
	return paces
}

// adding reports whether a limit in force is partial.
func (e *engine) adding() bool {
	for i := range e.shared {
		if l := &e.shared[i]; l.partial && l.counted() {
			return true
		}
	}
	return false
}

// Partial returns the limits in force that wait for FillIn, by name. Each has a number, which changes if the limit is
// taken out of the rules and put back.
func (m *Memory) Partial() map[string]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	partial := map[string]int64{}
	for i := range m.engine.shared {
		if l := &m.engine.shared[i]; l.partial && l.counted() {
			partial[l.Name] = l.since
		}
	}
	return partial
}

// FillIn sets how much all calls so far took from the limits that partial names, which must come from Partial. It
// changes neither other limits nor limits whose periods have changed meanwhile. The next grant waits until a snapshot
// with the result is stored.
func (m *Memory) FillIn(partial map[string]int64, used *Account) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.engine
	for i := range e.shared {
		l := &e.shared[i]
		since, named := partial[l.Name]
		of := used.Of(l.Name)
		if !named || !l.partial || l.since != since || of == nil || of.By != l.quota().by() {
			continue
		}
		l.partial, l.bound = false, false
		l.top = l.taken
		l.fillIn(of, e.ahead)
	}
}

// fillIn sets the limit's count to the units of all calls, or keeps the limit's own count if that is greater.
func (l *sharedLimit) fillIn(of *LimitAccount, ahead Micros) {
	switch m := l.meter.(type) {
	case *quotaMeter:
		m.former = 0
		switch p := (span{of.Start, of.End}).moved(-ahead); {
		case of.Used == 0:
		case p.start > m.period.start:
			m.period, m.used = p, of.Used
		case p.start == m.period.start:
			m.used = max(m.used, of.Used)
		}
	case *slidingMeter:
		units := int64(0)
		entries := make([]entry, len(of.Log))
		for i, e := range of.Log {
			at := Micros(e[0]) - ahead
			entries[i] = entry{at, at, e[1]}
			units += e[1]
		}
		if m.former = 0; units > m.sum {
			m.entries, m.sum = entries, units
		}
	}
}

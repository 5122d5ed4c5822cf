package bucket

// Limits that come into force within their period.
//
// A quota or budget that is new to the rules has not seen what was called before. An API may have counted it all the same, and where
// the limit was there before, in the same period, it certainly has. Whoever keeps a record of all calls says so with ExpectSums:
// then such a limit is partial, and nothing is granted while one that holds is. When all calls of before have their records, FillIn
// tells what they took. One that only watches stays partial, in snapshots too, and is added up when it is put in force.

// ExpectSums says that FillIn will be told what was used of limits that are new to the rules. s is what was restored, and called
// says that the api may have been called before: then limits that s does not have are new already. It must come after Restore and
// before the first Reserve.
func (m *Memory) ExpectSums(s Snapshot, called bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &m.engine
	e.sums = true
	stored := map[string]bool{}
	for _, l := range s.Limit {
		stored[l.Name] = l.P == 0 // no rate
		if l.P == 0 && !e.accounts(l.Name) {
			e.claims.dropped++
		}
	}
	for i := range e.shared {
		if l := &e.shared[i]; called && l.accounted() && !stored[l.Name] {
			l.partial, l.since = true, e.applied
		}
	}
}

// accounts reports whether the rules have a quota or budget of a name.
func (e *engine) accounts(name string) bool {
	for i := range e.shared {
		if l := &e.shared[i]; l.Name == name {
			return l.accounted()
		}
	}
	return false
}

// noteDropped has a snapshot without them be stored before anything more is granted, where the next rules miss limits.
func (e *engine) noteDropped(next Rules) {
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

// adding reports whether a limit that holds is partial.
func (e *engine) adding() bool {
	for i := range e.shared {
		if l := &e.shared[i]; l.partial && l.counted() {
			return true
		}
	}
	return false
}

// Partial names the limits that hold and wait for FillIn, each with a number that is another where the limit was taken out of the
// rules and put back since.
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

// FillIn tells what all calls so far took from partial limits, as Partial has named them. Others are left alone, and so are those
// whose periods are other ones meanwhile. What is granted next waits for a snapshot that has it.
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

// fillIn takes what all calls took, or what the limit has counted itself where that is more.
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

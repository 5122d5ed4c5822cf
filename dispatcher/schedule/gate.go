package schedule

import "weir/bucket"

// gate says when the store may be asked again for slots under shared limits, and why not earlier: a limit refused a
// job, the api starts slowly after a hold, or the store does not answer. Queues wait for the gate by turns. A key's own
// rate does not shut it.
type gate struct {
	opens  bucket.Micros // the store must not be asked before then
	by     string        // the limit, or slowed or storeDown; "" after the gate was opened
	scarce bucket.Micros // when a shared limit refused a job last; 0: never

	// Jobs that a shared limit has put off for long, such as a spent budget until midnight. The store may have refused
	// them because of a grant whose units came back just afterwards: a missed slot, or a call that took less than it
	// had asked for.
	putOff   bucket.Micros // the latest time that the store named; 0: no job waits that long
	asked    bucket.Micros // when the last round of asks was sent
	cameBack bucket.Micros // when the store last heard of units that come back
}

// shut keeps the store from being asked before a time.
func (g *gate) shut(by string, until bucket.Micros) { g.by, g.opens = by, until }

// open lets the store be asked at once.
func (g *gate) open() { g.by, g.opens = "", 0 }

// isShut reports whether the store may not be asked yet.
func (g *gate) isShut(now bucket.Micros) bool { return g.opens > now }

// isPlenty reports whether no limit has refused a job for long enough that a turn may be more than one call.
func (g *gate) isPlenty(now bucket.Micros) bool {
	return g.scarce == 0 || now >= g.scarce.Add(plentyAfter)
}

// takePutOff reports whether the jobs that were put off must ask again, because units came back since they asked. It
// returns true only once for the same jobs.
func (g *gate) takePutOff(now bucket.Micros) bool {
	if g.putOff <= now || g.cameBack == 0 || g.cameBack < g.asked {
		return false
	}
	g.putOff = 0
	return true
}

// UnitsCameBack notes that the store now counts some grants with fewer units than they had asked for. It reports
// whether the jobs that a shared limit has put off for long must ask again; the caller must then call AskAgain for
// every queue.
func (s *Schedule) UnitsCameBack(now bucket.Micros) (putOff bool) {
	s.gate.cameBack = now
	return s.gate.takePutOff(now)
}

// AskAgain makes a queue that a shared limit refused ask again, because the limit may open at another time than the
// store said: its period begins at another time, or units came back.
func (s *Schedule) AskAgain(q *KeyQueue, now bucket.Micros) {
	if s.byKey[q.Key] != q {
		return // it has been dropped since
	}
	if s.Shared.named(s.gate.by) != nil {
		s.gate.open()
	}
	q.rouse(now)
	s.Touch(q)
}

// PermitFreed lets the store be asked at once if a limit on calls in flight has shut the gate. The store may have a
// free permit of that limit again.
func (s *Schedule) PermitFreed() {
	if s.turns.waiting() > 0 && s.Shared.areInFlight(s.gate.by) {
		s.gate.opens = 0
	}
}

package schedule

import (
	"weir/bucket"
	"weir/dispatcher/schedule/limits"
)

// gate says when the store may be asked again for slots under shared limits, and why not earlier: a limit refused a
// job, the api starts slowly after a hold, or the store does not answer. Queues wait for the gate by turns. A key's own
// rate does not shut it.
type gate struct {
	replica limits.Replica // the limits of this process alone

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
	if s.Shared.Have(s.gate.by) {
		s.gate.open()
	}
	q.Jobs.rouse(now)
	s.Touch(q)
}

// PermitFreed lets the store be asked at once if a limit on calls in flight has shut the gate. The store may have a
// free permit of that limit again.
func (s *Schedule) PermitFreed() {
	if s.turns.Waiting() > 0 && s.Shared.AreInFlight(s.gate.by) {
		s.gate.opens = 0
	}
}

// mayAskReplica reports whether this replica's own limits let the schedule ask for one call. If a limit is used up, it
// shuts the gate until the limit opens.
func (s *step) mayAskReplica() bool {
	if !s.gate.replica.Any() {
		return true
	}
	if at, limit := s.gate.replica.Opens(s.now, s.Pipe.underWay(), 0); at > s.now {
		if at > s.gate.opens {
			s.gate.shut(limit, at)
		}
		return false
	}
	return len(s.fx.Asks) == 0
}

// TakeReplica counts an inquiry in this replica's own limits and returns 0. until is the latest time of the inquiry's
// slot. If the limits do not let the inquiry pass, TakeReplica counts nothing. It then returns when they will, and the
// name of the limit that opens last. The caller must call EndReplica when the inquiry has ended or was not made. A call
// for which a job has asked the store goes first.
func (s *Schedule) TakeReplica(now, until bucket.Micros) (at bucket.Micros, limit string) {
	if at, limit = s.gate.replica.Opens(now, s.Pipe.underWay(), s.store.rounds); at > now {
		return at, limit
	}
	s.gate.replica.Begin(until, now)
	return 0, ""
}

// EndReplica ends an inquiry that TakeReplica counted with this until. sent says whether it was sent. EndReplica
// reports whether jobs may ask for slots again.
func (s *Schedule) EndReplica(until bucket.Micros, sent bool) (more bool) {
	if s.gate.replica.End(until, sent); sent {
		return s.gate.freed()
	}
	return s.gate.gaveBack()
}

// freed opens the gate if this replica's own limit of calls at once has shut it, because that limit may have room
// again. It reports whether the limit had shut it.
func (g *gate) freed() bool {
	if _, inFlight := g.replica.Has(g.by); g.opens == 0 || !inFlight {
		return false
	}
	g.opens = 0
	return true
}

// gaveBack opens the gate if any of this replica's own limits has shut it, because a slot came back to them. It
// reports whether one of them had.
func (g *gate) gaveBack() bool {
	if is, _ := g.replica.Has(g.by); g.opens == 0 || !is {
		return false
	}
	g.opens = 0
	return true
}

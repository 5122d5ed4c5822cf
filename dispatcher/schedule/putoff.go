package schedule

import "weir/bucket"

// putOff is what is known of jobs that a shared limit has put off for long, such as a spent budget until
// midnight. The store may have refused them while it counted a grant whose units came back just afterwards: a
// missed slot, or a call that took less than it had asked for.
type putOff struct {
	until    bucket.Micros // the latest time that the store told; 0: no job waits that long
	asked    bucket.Micros // when the last round of asks was sent
	cameBack bucket.Micros // when the store last heard of units that come back
}

// UnitsCameBack notes that the store has heard of grants that took less than they had asked for.
func (s *Schedule) UnitsCameBack(now bucket.Micros) { s.putOff.cameBack = now }

// TakePutOff reports whether the jobs that a shared limit has put off for long must ask again, because units
// came back since they asked. It reports so once: the caller calls AskAgain for every queue.
func (s *Schedule) TakePutOff(now bucket.Micros) bool {
	p := &s.putOff
	if p.until <= now || p.cameBack == 0 || p.cameBack < p.asked {
		return false
	}
	p.until = 0
	return true
}

package turns

import "weir/bucket"

// Queue is a queue that takes turns.
type Queue[Q any] interface {
	comparable

	// Seats returns the queue's seats.
	Seats() *Seats[Q]
	// Ungranted returns how many of the queue's jobs that take turns of a priority are on their way to a slot, and
	// have none yet.
	Ungranted(p bucket.Priority) int
}

// Seats holds a queue's seats, one for each priority of which the queue may have jobs. The zero Seats belong to no
// tenant.
type Seats[Q any] struct {
	normal seat[Q]
	others *[len(bucket.Priorities)]seat[Q] // nil if the queue has only normal jobs
}

// of returns the seat among the turns of a priority. There must be one.
func (s *Seats[Q]) of(p bucket.Priority) *seat[Q] {
	if p == bucket.Normal {
		return &s.normal
	}
	return &s.others[p-bucket.High]
}

// has reports whether there is a seat for a priority.
func (s *Seats[Q]) has(p bucket.Priority) bool { return p == bucket.Normal || s.others != nil }

// make makes a seat for a priority, unless there is one.
func (s *Seats[Q]) make(p bucket.Priority) {
	if !s.has(p) {
		s.others = &[len(bucket.Priorities)]seat[Q]{}
	}
}

// onlyNormal holds the one priority of a queue with only normal jobs.
var onlyNormal = bucket.Priorities[bucket.Normal-bucket.High : bucket.Low-bucket.High]

// priorities returns the priorities for whose turns the queue has a tenant, and Normal.
func (s *Seats[Q]) priorities() []bucket.Priority {
	if s.others == nil {
		return onlyNormal
	}
	var all []bucket.Priority
	for _, p := range bucket.Priorities {
		if p == bucket.Normal || s.of(p).tenant != nil {
			all = append(all, p)
		}
	}
	return all
}

// State returns how the queue stands among the turns of a priority.
func (s *Seats[Q]) State(p bucket.Priority) State {
	if !s.has(p) {
		return State{}
	}
	return s.of(p).State
}

// IsJoined reports whether the queue belongs to a tenant in the order of a priority.
func (s *Seats[Q]) IsJoined(p bucket.Priority) bool { return s.has(p) && s.of(p).tenant != nil }

// Tenant returns the name of the queue's tenant in the order of a priority.
func (s *Seats[Q]) Tenant(p bucket.Priority) string { return s.of(p).tenant.name }

// Comes reports whether the queue waits for its next slot, for a priority and for any.
func (s *Seats[Q]) Comes(p bucket.Priority) (forIt, forAny bool) {
	forIt, forAny = s.of(p).came != 0, s.normal.came != 0
	for i := range bucket.Priorities {
		forAny = forAny || s.others != nil && s.others[i].came != 0
	}
	return forIt, forAny
}

// Waits reports whether the queue waits for turns of any priority: blocked says that it waits in a line, queued that it
// waits for room.
func (s *Seats[Q]) Waits() (blocked, queued bool) {
	blocked, queued = s.normal.Blocked, s.normal.Queued
	for i := range bucket.Priorities {
		if s.others != nil {
			blocked, queued = blocked || s.others[i].Blocked, queued || s.others[i].Queued
		}
	}
	return blocked, queued
}

// IsIdle reports whether the queue waits for nothing. others says the same of the priorities other than Normal.
func (s *Seats[Q]) IsIdle() (all, others bool) {
	others = true
	for i := range bucket.Priorities {
		others = others && (s.others == nil || s.others[i].isIdle())
	}
	return s.normal.isIdle() && others, others
}

// Part gives the queue tenants of its own: its calls that are on their way take no other queue's turn.
func (s *Seats[Q]) Part() {
	s.normal.tenant = &tenant[Q]{}
	for i := range bucket.Priorities {
		if s.others != nil {
			s.others[i].tenant = &tenant[Q]{}
		}
	}
}

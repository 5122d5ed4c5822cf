package schedule

import (
	"time"

	"weir/bucket"
)

// Pause is an operator's order not to call a key, or a whole api, until they resume it or its time is over. The
// dispatcher, which keeps the pauses, calls Resume then. The schedule uses the end of a pause only to forecast
// when calls should start.
type Pause struct {
	At    time.Time `json:"at"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	ForMS int64     `json:"for_ms,omitempty"` // its length from when it was stored; 0: until it is resumed
	Until time.Time `json:"until,omitzero"`   // when its time is over; zero if it has no end
}

// String says who paused and why, as far as the operator said.
func (p Pause) String() string {
	s := "paused"
	if p.By != "" {
		s += " by " + p.By
	}
	s += " at " + p.At.UTC().Format(time.RFC3339)
	if !p.Until.IsZero() {
		s += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Why != "" {
		s += ": " + p.Why
	}
	return s
}

// pauses holds the pauses in force for an api.
type pauses struct {
	api  *Pause
	keys map[string]Pause
}

// of returns the pause that keeps a key from being called: the key's own, or the api's if that one ends later. It
// returns nil if there is none.
func (p *pauses) of(key string) *Pause {
	own, paused := p.keys[key]
	switch {
	case !paused:
		return p.api
	case p.api != nil && !own.Until.IsZero() && (p.api.Until.IsZero() || p.api.Until.After(own.Until)):
		return p.api
	}
	return &own
}

// until returns when a pause is over, Never if it has no end.
func (p *Pause) until() bucket.Micros {
	if p.Until.IsZero() {
		return Never
	}
	return bucket.MicrosOf(p.Until)
}

// Pause keeps a key, or the whole api if key is "", from being called until it is resumed. Granted slots go
// back.
func (s *Schedule) Pause(key string, p Pause) {
	if key == "" {
		s.holds.paused.api = &p
		s.agenda.touchAll()
		return
	}
	s.holds.paused.keys[key] = p
	if q := s.byKey[key]; q != nil {
		q.brake.paused = true
		s.Touch(q)
	}
}

// IsPaused reports whether an operator keeps a queue from being called.
func (s *Schedule) IsPaused(q *KeyQueue) bool { return q.brake.paused || s.holds.paused.api != nil }

// Callable returns the time before which no call of a queue starts because of the queue's own holds, rate and calls in
// flight. It returns Never if operations hold all slots of the queue. It ignores pauses, and holds of the whole api.
func (s *Schedule) Callable(q *KeyQueue, now bucket.Micros) bucket.Micros {
	if q.isHeld() {
		return Never
	}
	return max(q.brake.held, q.brake.earliest(), q.crowded(), s.policy.NextSlot(q, now))
}

// Resume ends a pause. Holds by the api or a limit stay in force.
func (s *Schedule) Resume(key string, now bucket.Micros) {
	if key == "" {
		s.holds.paused.api = nil
		for _, q := range s.agenda.all {
			q.rouse(now)
			s.Touch(q)
		}
		return
	}
	delete(s.holds.paused.keys, key)
	if q := s.byKey[key]; q != nil {
		q.brake.paused = false
		q.rouse(now)
		s.Touch(q)
	}
}

// TryNow lets an open breaker's probe be made at once, because an operator says that the api works again. Holds that
// the api's answers asked for stay in force. TryNow reports whether the breaker was open.
func (s *Schedule) TryNow(now bucket.Micros) bool {
	if !s.holds.tryNow(now) {
		return false
	}
	for _, q := range s.agenda.all {
		for _, j := range q.Jobs {
			if j.Phase == resting && j.tripped {
				j.NotBefore = min(j.NotBefore, now)
			}
		}
		q.rouse(now)
		s.Touch(q)
	}
	return true
}

// rouse lets those jobs of the queue be tried again that rest because of a hold or a limit.
func (q *KeyQueue) rouse(now bucket.Micros) {
	for _, j := range q.Jobs {
		if j.Phase == resting && j.limited {
			j.NotBefore = now
		}
	}
}

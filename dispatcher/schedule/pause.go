package schedule

import (
	"time"

	"weir/bucket"
)

// Pause is an operator's word that a key, or a whole api, is not to be called until they say so again, or until its time is over.
// Whoever keeps the pauses ends it by Resume then: the schedule goes by it only to tell when calls should start.
type Pause struct {
	At    time.Time `json:"at"`
	By    string    `json:"by,omitempty"`
	Why   string    `json:"why,omitempty"`
	ForMS int64     `json:"for_ms,omitempty"` // from when it was stored on; 0: until it is resumed
	Until time.Time `json:"until,omitzero"`   // when its time is over; zero where it has none
}

// String says who paused and why, as far as they told.
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

// pauses are those in force for an api.
type pauses struct {
	api  *Pause
	keys map[string]Pause
}

// of is the pause that keeps a key from being called: its own, or the api's where that lasts longer. nil where there is none.
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

// ends is when a pause is over, Never where nobody knows.
func (p *Pause) ends() bucket.Micros {
	if p.Until.IsZero() {
		return Never
	}
	return bucket.MicrosOf(p.Until)
}

// heldUntil is the time before which a queue must not be called, never while it is paused.
func (s *Schedule) heldUntil(q *KeyQueue) bucket.Micros {
	if q.paused || s.paused.api != nil {
		return Never
	}
	return max(q.held, s.held, s.breaker.until, q.crowded())
}

// Pause keeps a key, or with "" the whole api, from being called until it is resumed. What has a slot gives it back.
func (s *Schedule) Pause(key string, p Pause) {
	if key == "" {
		s.paused.api = &p
		s.touchAll()
		return
	}
	s.paused.keys[key] = p
	if q := s.byKey[key]; q != nil {
		q.paused = true
		s.Touch(q)
	}
}

// Resume ends a pause. What an api or a limit holds besides goes on holding.
func (s *Schedule) Resume(key string, now bucket.Micros) {
	if key == "" {
		s.paused.api = nil
		for _, q := range s.byKey {
			s.rouse(q, now)
		}
		return
	}
	delete(s.paused.keys, key)
	if q := s.byKey[key]; q != nil {
		q.paused = false
		s.rouse(q, now)
	}
}

// TryNow lets an open breaker's probe be made at once: an operator says that the api works again. What an answer of the api
// holds goes on holding. It reports whether the breaker was open.
func (s *Schedule) TryNow(now bucket.Micros) bool {
	if s.breaker.closed() {
		return false
	}
	s.breaker.until, s.tried = min(s.breaker.until, now), now
	for _, q := range s.byKey {
		for _, j := range q.Jobs {
			if j.Phase == resting && j.tripped {
				j.NotBefore = min(j.NotBefore, now)
			}
		}
		s.rouse(q, now)
	}
	return true
}

// rouse lets what a hold or a limit sent to rest be looked at again.
func (s *Schedule) rouse(q *KeyQueue, now bucket.Micros) {
	for _, j := range q.Jobs {
		if j.Phase == resting && j.limited {
			j.NotBefore = now
		}
	}
	s.Touch(q)
}

// AskAgain has a queue ask again for what a shared limit refused: its period begins at another time than the store told.
func (s *Schedule) AskAgain(q *KeyQueue, now bucket.Micros) {
	if s.byKey[q.Key] != q {
		return // it has been let go of since
	}
	if _, l := s.shared(s.by); l != nil {
		s.until, s.by = 0, ""
	}
	s.rouse(q, now)
}

func (s *Schedule) touchAll() {
	for _, q := range s.byKey {
		s.Touch(q)
	}
}

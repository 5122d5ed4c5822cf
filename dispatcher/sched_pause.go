package dispatcher

import (
	"time"
	"weir/bucket"
)

// Pause is an operator's word that a key, or a whole api, is not to be called until they say so again.
type Pause struct {
	At  time.Time `json:"at"`
	By  string    `json:"by,omitempty"`
	Why string    `json:"why,omitempty"`
}

// String says who paused and why, as far as they told.
func (p Pause) String() string {
	s := "paused"
	if p.By != "" {
		s += " by " + p.By
	}
	s += " at " + p.At.UTC().Format(time.RFC3339)
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

// heldUntil is the time before which a line must not be called, never while it is paused.
func (s *schedule) heldUntil(l *line) bucket.Micros {
	if l.paused || s.paused.api != nil {
		return never
	}
	return max(l.held, s.held, s.breaker.until, l.crowded())
}

// pause keeps a key, or with "" the whole api, from being called until it is resumed. What has a slot gives it back.
func (s *schedule) pause(key string, p Pause) {
	if key == "" {
		s.paused.api = &p
		s.touchAll()
		return
	}
	s.paused.keys[key] = p
	if l := s.lines[key]; l != nil {
		l.paused = true
		s.touch(l)
	}
}

// resume ends a pause. What an api or a limit holds besides goes on holding.
func (s *schedule) resume(key string, now bucket.Micros) {
	if key == "" {
		s.paused.api = nil
		for _, l := range s.lines {
			s.rouse(l, now)
		}
		return
	}
	delete(s.paused.keys, key)
	if l := s.lines[key]; l != nil {
		l.paused = false
		s.rouse(l, now)
	}
}

// tryNow lets an open breaker's probe be made at once: an operator says that the api works again. What an answer of the api
// holds goes on holding. It reports whether the breaker was open.
func (s *schedule) tryNow(now bucket.Micros) bool {
	if s.breaker.closed() {
		return false
	}
	s.breaker.until = min(s.breaker.until, now)
	for _, l := range s.lines {
		for _, t := range l.tasks {
			if t.phase == resting && t.tripped {
				t.notBefore = min(t.notBefore, now)
			}
		}
		s.rouse(l, now)
	}
	return true
}

// rouse lets what a hold or a limit sent to rest be looked at again.
func (s *schedule) rouse(l *line, now bucket.Micros) {
	for _, t := range l.tasks {
		if t.phase == resting && t.limited {
			t.notBefore = now
		}
	}
	s.touch(l)
}

func (s *schedule) touchAll() {
	for _, l := range s.lines {
		s.touch(l)
	}
}

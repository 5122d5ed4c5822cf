package dispatcher

import (
	"weir/bucket"
)

// hold keeps a line, or with l nil the whole api, from calling before until. It never shortens a hold.
func (s *schedule) hold(l *line, until bucket.Micros, why string) {
	if l == nil {
		if until > s.held {
			s.held, s.why = until, why
		}
		return
	}
	if until > l.held {
		l.held, l.why = until, why
		s.heldKeys[l] = struct{}{}
	}
	s.touch(l)
}

// countHeld counts the holds that last, the api's own as one.
func (s *schedule) countHeld(now bucket.Micros) int {
	for l := range s.heldKeys {
		if l.held <= now {
			delete(s.heldKeys, l)
		}
	}
	if max(s.held, s.breaker.until) > now {
		return len(s.heldKeys) + 1
	}
	return len(s.heldKeys)
}

// lastGranted is the latest slot that a task of the line waits for, 0 if none.
func (l *line) lastGranted() bucket.Micros {
	var last bucket.Micros
	for _, t := range l.tasks {
		if t.phase == granted {
			last = max(last, t.at)
		}
	}
	return last
}

// eta is when the call of the key's job at this position should start, at cost 1 and if no shared limit binds; 0 when
// the key is paused.
func (s *schedule) eta(key string, position int, tat, now bucket.Micros) bucket.Micros {
	if _, paused := s.paused.keys[key]; paused || s.paused.api != nil {
		return 0
	}
	limits := s.limitsOf(key)
	held := max(s.held, s.breaker.until)
	if l := s.lines[key]; l != nil {
		tat, held = max(tat, l.tat), max(held, l.held)
		if position -= l.count(granted, calling, settling); position < 1 {
			return max(now, l.lastGranted()) // it has its slot, or is past it
		}
	}
	return bucket.Forecast(*limits, s.rules.Interval(limits.Rate), tat, max(now, held), position)
}

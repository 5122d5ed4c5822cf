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

// countHeld counts the keys that are held, or paused and ours, and the api as one where it is either.
func (s *schedule) countHeld(now bucket.Micros, ours func(key string) bool) int {
	n := 0
	for l := range s.heldKeys {
		if l.held <= now {
			delete(s.heldKeys, l)
		} else if !l.paused {
			n++
		}
	}
	for key := range s.paused.keys {
		if ours(key) {
			n++
		}
	}
	if s.paused.api != nil || max(s.held, s.breaker.until, s.spent) > now || s.breaker.denied {
		n++
	}
	return n
}

// heardOfBudget takes in whether a round of asks met a budget that is spent: it holds the api until it begins anew. It does
// so in the store, which is asked all the same; what is kept here is what to tell.
func (s *schedule) heardOfBudget(a *bucket.Answer, now bucket.Micros) (news, bool) {
	switch {
	case len(a.Grants) > 0 && s.spent != 0:
		s.spent = 0
		return news{why: "there is money again"}, true
	case len(a.Grants) == 0 && a.Wait.Until > now.Add(longWait) && a.Wait.Exhausted != bucket.DeadLetter && s.isBudget(a.Wait.Limit):
		former := s.spent
		s.spent = a.Wait.Until
		return news{until: s.spent, why: "the budget " + a.Wait.Limit + " is spent"}, former == 0
	}
	return news{}, false
}

func (s *schedule) isBudget(limit string) bool {
	for i := range s.rules.Shared {
		if l := &s.rules.Shared[i]; l.Name == limit {
			return l.Budget != nil
		}
	}
	return false
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

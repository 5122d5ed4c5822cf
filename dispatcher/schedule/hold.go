package schedule

import (
	"time"

	"weir/bucket"
)

// MostHold bounds what an api's answer may ask for, and what is read back of it after a restart.
const MostHold = 24 * time.Hour

// Hold keeps a queue, or with q nil the whole api, from calling before until. It never shortens a hold.
func (s *Schedule) Hold(q *KeyQueue, until bucket.Micros, why string) {
	if q == nil {
		if until > s.held {
			s.held, s.why = until, why
		}
		return
	}
	if until > q.held {
		q.held, q.why = until, why
		s.heldKeys[q] = struct{}{}
	}
	s.Touch(q)
}

// ClosedUntil is until when nothing may be sent to the api about a key, whoever asks: never while it is paused, 0 where something may.
func (s *Schedule) ClosedUntil(key string, now bucket.Micros) bucket.Micros {
	if _, paused := s.paused.keys[key]; paused || s.paused.api != nil {
		return Never
	}
	until := max(s.held, s.breaker.until)
	if !s.breaker.closed() {
		until = max(until, now.Add(StoreRetry)) // one call tries, and this is none
	}
	if q := s.byKey[key]; q != nil {
		until = max(until, q.held)
	}
	if until <= now {
		return 0
	}
	return until
}

// countHeld counts the keys that are held, or paused and ours, and the api as one where it is either.
func (s *Schedule) countHeld(now bucket.Micros, ours func(key string) bool) int {
	n := 0
	for q := range s.heldKeys {
		if q.held <= now {
			delete(s.heldKeys, q)
		} else if !q.paused {
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

// onBudget takes in whether a round of asks met a budget that is spent: it holds the api until it begins anew. It does
// so in the store, which is asked all the same; what is kept here is what to tell.
func (s *Schedule) onBudget(a *bucket.Answer, now bucket.Micros) (HoldChange, bool) {
	_, l := s.shared(a.Wait.Limit)
	switch {
	case len(a.Grants) > 0 && s.spent != 0:
		s.spent = 0
		return HoldChange{Why: "there is money again"}, true
	case len(a.Grants) == 0 && a.Wait.Until > now.Add(LongWait) && a.Wait.Exhausted != bucket.DeadLetter && l != nil && l.Budget != nil:
		former := s.spent
		s.spent = a.Wait.Until
		return HoldChange{Until: s.spent, Why: "the budget " + a.Wait.Limit + " is spent"}, former == 0
	}
	return HoldChange{}, false
}

// lastGranted is the latest slot that a job of the queue waits for, 0 if none.
func (q *KeyQueue) lastGranted() bucket.Micros {
	var last bucket.Micros
	for _, j := range q.Jobs {
		if j.Phase == granted {
			last = max(last, j.At)
		}
	}
	return last
}

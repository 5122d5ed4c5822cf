package schedule

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/bucket"
)

// MostHold bounds the hold that an api's answer may ask for, and the hold that is read back after a restart.
const MostHold = 24 * time.Hour

// Hold keeps a queue, or the whole api if q is nil, from calling before until. It never shortens a hold.
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

// ClosedUntil returns until when nothing may be sent to the api about a key, neither a call nor an inquiry:
// Never while the key or the api is paused, 0 if requests may be sent.
func (v View) ClosedUntil(key string) bucket.Micros {
	if _, paused := v.s.paused.keys[key]; paused || v.s.paused.api != nil {
		return Never
	}
	until := max(v.s.held, v.s.breaker.until)
	if !v.s.breaker.closed() {
		until = max(until, v.now.Add(StoreRetry)) // one call tries, and this is none
	}
	if q := v.s.byKey[key]; q != nil {
		until = max(until, q.held)
	}
	if until <= v.now {
		return 0
	}
	return until
}

// countHeld counts the keys that are held, or that are paused and ours. It counts the api as one if it is held
// or paused.
func (v View) countHeld(ours func(key string) bool) int {
	n := 0
	for q := range v.s.heldKeys {
		if q.held <= v.now {
			delete(v.s.heldKeys, q)
		} else if !q.paused {
			n++
		}
	}
	for key := range v.s.paused.keys {
		if ours(key) {
			n++
		}
	}
	if v.s.paused.api != nil || max(v.s.held, v.s.breaker.until, v.s.spent) > v.now || v.s.breaker.denied {
		n++
	}
	return n
}

// HoldState is a hold that no operator made: of a key, or of the whole api if Key is "".
type HoldState struct {
	Key   string    `json:"key,omitempty"`
	Until time.Time `json:"until"`
	Why   string    `json:"why"`
	// Fault says that an operator must mend something: the api denies weir, or its calls keep failing.
	Fault bool `json:"fault,omitempty"`
	// Budget names the spent budget that holds the api, if one does.
	Budget string `json:"budget,omitempty"`
}

// mostHolds bounds the held keys that Holds sorts, since calls wait meanwhile. If more are held, Holds returns
// any of them.
const mostHolds = 1000

// Holds lists what keeps the api, or keys of it, from being called now: first the api's hold, then at most limit
// of the keys' holds, by when they end. keys is the number of all held keys.
func (v View) Holds(limit int) (holds []HoldState, keys int) {
	for q := range v.s.heldKeys {
		if q.held > v.now {
			if keys++; len(holds) < mostHolds {
				holds = append(holds, HoldState{Key: q.Key, Until: q.held.Time(), Why: q.why})
			}
		}
	}
	slices.SortFunc(holds, func(a, b HoldState) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Key, b.Key))
	})
	holds = holds[:min(len(holds), limit)]
	if h, held := v.apiHold(); held {
		holds = slices.Insert(holds, 0, h)
	}
	return holds, keys
}

// LimiterDown reports whether the store of the limits did not answer the last round of asks: calls hold.
func (v View) LimiterDown() bool { return v.s.store.failures > 0 }

// apiHold returns what holds the whole api.
func (v View) apiHold() (h HoldState, held bool) {
	switch {
	case v.s.breaker.until > v.now && v.s.breaker.until >= v.s.held:
		return HoldState{Until: v.s.breaker.until.Time(), Why: v.s.breaker.reason(), Fault: true}, true
	case v.s.held > v.now:
		return HoldState{Until: v.s.held.Time(), Why: v.s.why}, true
	case !v.s.breaker.closed(): // its time is over, and no probe has been answered yet
		return HoldState{Until: v.s.breaker.until.Time(), Why: v.s.breaker.reason(), Fault: true}, true
	case v.s.spent > v.now:
		return HoldState{Until: v.s.spent.Time(), Why: spentText(v.s.spentBy), Budget: v.s.spentBy}, true
	}
	return HoldState{}, false
}

// onBudget notes whether a round of asks met a spent budget, which holds the api until the budget begins anew.
// The store enforces that hold, and is still asked; the schedule keeps it only to report it.
func (s *Schedule) onBudget(a *bucket.Answer, now bucket.Micros) (HoldChange, bool) {
	switch {
	case len(a.Grants) > 0 && s.spent != 0:
		s.spent = 0
		return HoldChange{Why: "there is money again"}, true
	case len(a.Grants) == 0 && a.Wait.Until > now.Add(LongWait) && a.Wait.Exhausted == bucket.Hold:
		former := s.spent
		s.spent, s.spentBy = a.Wait.Until, a.Wait.Limit
		return HoldChange{Until: s.spent, Why: spentText(s.spentBy)}, former == 0
	}
	return HoldChange{}, false
}

func spentText(budget string) string { return "the budget " + budget + " is spent" }

// lastGranted returns the latest slot that a job of the queue waits for, 0 if none does.
func (q *KeyQueue) lastGranted() bucket.Micros {
	var last bucket.Micros
	for _, j := range q.Jobs {
		if j.Phase == granted {
			last = max(last, j.At)
		}
	}
	return last
}

package schedule

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"weir/bucket"
)

// HoldState is a hold that is not an operator's: of a key, or with Key "" of the whole api.
type HoldState struct {
	Key   string    `json:"key,omitempty"`
	Until time.Time `json:"until"`
	Why   string    `json:"why"`
	// Fault says that somebody has to mend something: the api denies weir, or its calls keep failing.
	Fault bool `json:"fault,omitempty"`
}

// mostHolds bounds the held keys that are put in order, since calls wait meanwhile: where more are held, any of them are told.
const mostHolds = 1000

// Holds lists what keeps the api, or keys of it, from being called now: the api's first, then the keys' in the order in which they
// end, at most limit of them. keys is how many keys are held in all.
func (s *Schedule) Holds(limit int, now bucket.Micros) (holds []HoldState, keys int) {
	for q := range s.heldKeys {
		if q.held > now {
			if keys++; len(holds) < mostHolds {
				holds = append(holds, HoldState{Key: q.Key, Until: q.held.Time(), Why: q.why})
			}
		}
	}
	slices.SortFunc(holds, func(a, b HoldState) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.Key, b.Key))
	})
	holds = holds[:min(len(holds), limit)]
	if h, held := s.apiHold(now); held {
		holds = slices.Insert(holds, 0, h)
	}
	return holds, keys
}

// LimiterDown reports whether the store of the limits did not answer when it was asked last: calls hold.
func (s *Schedule) LimiterDown() bool { return s.store.failures > 0 }

// apiHold is what holds the whole api.
func (s *Schedule) apiHold(now bucket.Micros) (h HoldState, held bool) {
	switch {
	case s.breaker.until > now && s.breaker.until >= s.held:
		return HoldState{Until: s.breaker.until.Time(), Why: s.breaker.reason(), Fault: true}, true
	case s.held > now:
		return HoldState{Until: s.held.Time(), Why: s.why}, true
	case !s.breaker.closed(): // its time is over, and it has not been tried, or not answered yet
		return HoldState{Until: s.breaker.until.Time(), Why: s.breaker.reason(), Fault: true}, true
	case s.spent > now:
		return HoldState{Until: s.spent.Time(), Why: "the budget is spent"}, true
	}
	return HoldState{}, false
}

package dispatcher

import (
	"slices"
	"sync"
	"time"

	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/ingest"
)

// settlements remembers what the answers of an api reported of their calls. It is safe for concurrent use.
type settlements struct {
	mu     sync.Mutex // guards what follows
	told   map[termName]*told
	silent bool // the last answer that should have reported the units did not
}

// termName names a term: the limit whose cost it is a part of, lane.OfPrice for the price, and its place there.
type termName struct {
	limit string
	place int
}

// told holds what answers reported of one term. A call whose answer reports nothing is charged the most, because it may
// have used that much.
type told struct {
	most   int64
	recent [learnedFrom]int64 // the newest reports, in a ring
	n      int                // reports so far
}

// Bounds of what a term learns from: fewer reports say little about a percentile, and older ones no longer count.
const (
	learnedFrom = 256
	leastTold   = 16
)

// learned lowers the estimated numbers of a cost to the percentiles of what answers reported lately.
func (s *settlements) learned(limit string, of ingest.Cost, numbers []int64) {
	for i := range of {
		if of[i].Learn == 0 {
			continue
		}
		if t := s.told[termName{limit, i}]; t != nil && t.n >= leastTold {
			recent := slices.Clone(t.recent[:min(t.n, learnedFrom)])
			slices.Sort(recent)
			numbers[i] = min(numbers[i], recent[(len(recent)*of[i].Learn+99)/100-1])
		}
	}
}

// settle replaces the estimated numbers of a cost by those that an answer reports. If it does not report one, the call
// is charged the largest of the estimate and the most that any answer has reported; if it broke off, the largest of the
// estimate and what it had reported before. settle returns the units, and whether the answer was silent about some.
func (s *settlements) settle(limit string, of ingest.Cost, numbers []int64, r httpcall.Response) (units int64, silent bool) {
	for i := range of {
		if !of[i].Settle.IsPlace() {
			continue
		}
		n, ok := r.Number(of[i].Settle)
		name := termName{limit, i}
		t := s.told[name]
		switch {
		case ok && !r.Cut:
			if t == nil {
				t = &told{}
				if s.told == nil {
					s.told = map[termName]*told{}
				}
				s.told[name] = t
			}
			t.most, t.recent[t.n%learnedFrom] = max(t.most, n), n
			t.n++
			numbers[i] = n
		case ok:
			numbers[i], silent = max(numbers[i], n), true
		default:
			if silent = true; t != nil {
				numbers[i] = max(numbers[i], t.most)
			}
		}
	}
	return of.Sum(numbers), silent
}

// toll returns what a job's call is to reserve.
func (s *settlements) toll(by *lane.Terms, j *ingest.Job) (lane.Toll, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return by.TollBy(j, func(limit string, of ingest.Cost, numbers []int64) int64 {
		s.learned(limit, of, numbers)
		return of.Sum(numbers)
	})
}

// settled is what a call took.
type settled struct {
	actual []int64  // units of each shared limit; nil: as reserved
	price  int64    // in millionths
	silent []string // limits whose units the answer should have reported, and did not
}

// settle returns what a call really took: what the answer reports, 0 from a quota if nothing was sent, and 0 from a
// budget if the call was not billed.
func (w *caller) settleUnits(j *lane.Job, r httpcall.Response) (s settled) {
	free := httpcall.Judge(j.Terms.API, r, time.Now()).Billed == deadletter.NotBilled
	w.settlements.mu.Lock()
	took, err := j.Terms.TollBy(j.Message, func(limit string, of ingest.Cost, numbers []int64) int64 {
		if free && limit == lane.OfPrice {
			return of.Sum(numbers)
		}
		before := slices.Clone(numbers)
		units, silent := w.settlements.settle(limit, of, numbers, r)
		switch {
		case silent && free:
			return of.Sum(before)
		case silent && limit == lane.OfPrice:
			s.silent = append(s.silent, j.Terms.API.Rules.Budgets()...)
		case silent:
			s.silent = append(s.silent, limit)
		}
		return units
	})
	news := len(s.silent) > 0 && !w.settlements.silent
	w.settlements.silent = len(s.silent) > 0 || free && w.settlements.silent
	w.settlements.mu.Unlock()
	if err != nil { // it was read before the call, so this does not happen
		return settled{price: j.Reserved}
	}
	s.price = took.Price
	for i, limit := range j.Terms.API.Rules.Shared {
		if limit.Budget != nil && free || limit.Quota != nil && !r.Sent { // as in the ledger
			took.Costs[i] = 0
		}
	}
	if len(s.silent) > 0 {
		w.Env.Metrics.Unsettled.WithLabelValues(w.Name).Inc()
	}
	if news {
		w.LogOf(j).Warn("an answer does not report the units of its call: the call is charged its estimate, or the most that any answer has reported",
			"limits", s.silent, "status", r.Status)
	}
	if j.Costs != nil && !slices.Equal(took.Costs, j.Costs) {
		s.actual = took.Costs
	}
	return s
}

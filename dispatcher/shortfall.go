package dispatcher

import (
	"slices"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// estimateOf identifies where the estimates of a term come from, and where answers report what they should have been.
type estimateOf struct{ from, settle ingest.Source }

// shortfalls remembers by how much recent estimates were too low. The settlements' lock guards it.
type shortfalls map[estimateOf]*shortfall

// shortfall holds the newest estimates of a term with what answers reported for them, and the worst of them.
type shortfall struct {
	recent [learnedFrom]struct{ estimated, reported int64 } // a ring
	n      int
	judged int           // the n for which worst and most are right
	worst  ingest.Weight // the largest report divided by its estimate, if that is above one
	most   int64         // the largest report
}

// hear notes what an answer reported for an estimate.
func (s *shortfall) hear(estimated, reported int64) {
	s.recent[s.n%learnedFrom] = struct{ estimated, reported int64 }{estimated, reported}
	s.n++
}

// judge finds the worst estimate and the largest report.
func (s *shortfall) judge() {
	if s.judged == s.n {
		return
	}
	s.judged = s.n
	s.worst, s.most = ingest.Weight{}, 0
	for _, r := range s.recent[:min(s.n, learnedFrom)] {
		s.most = max(s.most, r.reported)
		low := r.reported > r.estimated && r.estimated > 0
		if low && (s.worst == ingest.Weight{} || s.worst.Of(r.estimated) < r.reported) {
			s.worst = ingest.Weight{Num: r.reported, Den: r.estimated}
		}
	}
}

// raise returns an estimate that is as much higher as the worst recent one should have been, but at most the largest
// number that was reported: one answer that was far off its small estimate says little about a large one. An estimate
// of 0 says that nothing is expected, as of tokens written to a cache, and stays.
func (s *shortfall) raise(estimated int64) int64 {
	s.judge()
	if (s.worst == ingest.Weight{}) || estimated == 0 {
		return estimated
	}
	return max(estimated, min(s.worst.Of(estimated), s.most))
}

// hear notes what an answer reported for the estimated numbers of a cost.
func (all *shortfalls) hear(of ingest.Cost, numbers []int64, number func(ingest.Source) (int64, bool)) {
	for i := range of {
		n, ok := number(of[i].Settle)
		if !of[i].Settle.IsPlace() || !ok {
			continue
		}
		at := estimateOf{of[i].From, of[i].Settle}
		s := (*all)[at]
		if s == nil {
			if s = new(shortfall); *all == nil || len(*all) >= mostPlaces {
				*all = shortfalls{}
			}
			(*all)[at] = s
		}
		s.hear(numbers[i], n)
	}
}

// raise raises the estimated numbers of a cost that recent answers have proved too low.
func (all shortfalls) raise(of ingest.Cost, numbers []int64) {
	for i := range of {
		if s := all[estimateOf{of[i].From, of[i].Settle}]; s != nil && of[i].Settle.IsPlace() {
			numbers[i] = s.raise(numbers[i])
		}
	}
}

// bounded returns the units that a call reserves of a limit if its estimate was raised from estimated to raised: no
// more than the limit can ever let through, so that the job is called.
func bounded(rules *bucket.Rules, limit int, estimated, raised int64) int64 {
	most := int64(ingest.MostUnits)
	for i := range rules.Shared {
		if l := &rules.Shared[i]; !l.Shadow && (i == limit || limit < 0 && l.Budget != nil) {
			most = min(most, rules.Capacity(*l))
		}
	}
	return max(min(estimated, raised), min(raised, most))
}

// recall notes a call of another process that took more than was estimated for it. What the most of other answers was
// taken for says nothing about an estimate. Of the budgets, a job of a pack was charged its part of the call only.
func (s *settlements) recall(c *ledger.Record, budgets []string) {
	if len(c.Unsettled) > 0 || c.Billed == deadletter.NotBilled || min(len(c.Costs), len(c.Estimated)) < len(c.Limits) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, limit := range c.Limits {
		b := s.before[limit]
		if b == nil {
			if b = new(shortfall); s.before == nil || len(s.before) >= mostPlaces {
				s.before = map[string]*shortfall{}
			}
			s.before[limit] = b
		}
		parts := int64(1)
		if c.Pack != nil && slices.Contains(budgets, limit) {
			parts = int64(c.Pack.Of)
		}
		b.hear(parts*c.Estimated[i], parts*c.Costs[i])
	}
}

// recalled returns the units of a limit, or of the price, that a call is to reserve by what the ledger has of earlier
// calls. It returns 0 if the ledger has none, and when answers to this process have said enough.
func (s *settlements) recalled(rules *bucket.Rules, limit int, estimate int64) (units int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard >= leastTold {
		return 0
	}
	for i := range rules.Shared {
		l := &rules.Shared[i]
		if b := s.before[l.Name]; b != nil && (i == limit || limit < 0 && l.Budget != nil) {
			units = max(units, b.raise(estimate))
		}
	}
	return units
}

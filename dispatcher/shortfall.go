package dispatcher

import (
	"math/bits"
	"slices"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/ledger"
	"weir/ingest"
)

// estimateOf identifies estimates that are judged together. They belong either to terms with the same from and settle,
// or to the sums of one limit.
type estimateOf struct {
	from, settle ingest.Source
	limit        string // the limit whose sums are judged; "" if terms are judged
}

// shortfalls remembers by how much recent estimates were too low. The settlements' lock guards it.
type shortfalls map[estimateOf]*shortfall

// shortfall holds the newest estimates of one kind with what answers reported for them, and the worst of them.
type shortfall struct {
	recent   [learnedFrom]struct{ estimated, reported int64 } // a ring
	n        int
	recalled int // n after the newest estimate that came from the ledger; 0: none did
	// judge computed what follows from recent, when n was judged.
	judged     int
	worst      ingest.Weight // the largest ratio of report to estimate, at least one
	most       int64         // the largest report
	unexpected int64         // the largest report for an estimate of 0
}

// hear notes what an answer reported for an estimate.
func (s *shortfall) hear(estimated, reported int64) {
	s.recent[s.n%learnedFrom] = struct{ estimated, reported int64 }{estimated, reported}
	s.n++
}

// judge finds the worst estimate and the largest reports, if hear was called since it last did.
func (s *shortfall) judge() {
	if s.judged == s.n {
		return
	}
	s.judged = s.n
	s.worst, s.most, s.unexpected = ingest.Weight{Num: 1, Den: 1}, 0, 0
	for _, r := range s.recent[:min(s.n, learnedFrom)] {
		s.most = max(s.most, r.reported)
		if r.estimated == 0 {
			s.unexpected = max(s.unexpected, r.reported)
			continue
		}
		high, low := bits.Mul64(uint64(r.reported), uint64(s.worst.Den))
		worstHigh, worstLow := bits.Mul64(uint64(s.worst.Num), uint64(r.estimated))
		if high > worstHigh || high == worstHigh && low > worstLow {
			s.worst = ingest.Weight{Num: r.reported, Den: r.estimated}
		}
	}
}

// raise multiplies an estimate by the worst recent ratio of report to estimate. The result is at most the largest
// report: one answer far above a small estimate says little about a large estimate. An estimate that is above the
// largest report stays as it is, and so does 0.
func (s *shortfall) raise(estimated int64) int64 {
	if s.judge(); s.judged == 0 {
		return estimated
	}
	return max(estimated, min(s.worst.Of(estimated), s.most))
}

// fromLedger reports whether some of the recent estimates came from the ledger.
func (s *shortfall) fromLedger() bool { return s.recalled > 0 && s.n-s.recalled < learnedFrom }

// of returns the shortfall of the estimates at, and creates it if it is missing. If mostPlaces shortfalls exist
// already, it first forgets them all.
func (all *shortfalls) of(at estimateOf) *shortfall {
	s := (*all)[at]
	if s == nil {
		if s = new(shortfall); *all == nil || len(*all) >= mostPlaces {
			*all = shortfalls{}
		}
		(*all)[at] = s
	}
	return s
}

// raise raises those estimated numbers of a cost that recent answers have proved too low. A number of 0 stays: it says
// that nothing is expected, for example no tokens written to a cache.
func (all shortfalls) raise(of ingest.Cost, numbers []int64) {
	for i := range of {
		if s := all[estimateOf{from: of[i].From, settle: of[i].Settle}]; s != nil && of[i].Settle.IsPlace() {
			numbers[i] = s.raise(numbers[i])
		}
	}
}

// comparison lists what one answer reports for the estimates of its call, without repetitions.
type comparison []compared

type compared struct {
	at                  estimateOf
	estimated, reported int64
}

func (c *comparison) add(at estimateOf, estimated, reported int64) {
	if one := (compared{at, estimated, reported}); !slices.Contains(*c, one) {
		*c = append(*c, one)
	}
}

// terms adds what the answer r reports for the estimated numbers of a cost. It adds nothing if the answer broke off,
// because such an answer reports less than the call took.
func (c *comparison) terms(of ingest.Cost, numbers []int64, r *httpcall.Response) {
	for i := range of {
		if n, ok := r.Number(of[i].Settle); ok && !r.Cut && of[i].Settle.IsPlace() {
			c.add(estimateOf{from: of[i].From, settle: of[i].Settle}, numbers[i], n)
		}
	}
}

// sums adds what the call took of a limit, or its price if limit is lane.OfPrice. The answer must report all numbers.
func (c *comparison) sums(rules *bucket.Rules, limit int, estimated, took int64) {
	for _, name := range limitsOf(rules, limit) {
		c.add(estimateOf{limit: name}, estimated, took)
	}
}

// limitsOf returns the name of a limit, or the names of the budgets if limit is lane.OfPrice.
func limitsOf(rules *bucket.Rules, limit int) []string {
	if limit == lane.OfPrice {
		return rules.Budgets()
	}
	return []string{rules.Shared[limit].Name}
}

// learn remembers what a billed answer reports for the estimates of its call.
func (s *settlements) learn(from comparison) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range from {
		s.low.of(one.at).hear(one.estimated, one.reported)
	}
}

// bounded returns the units that a call reserves of a limit after its estimate was raised from estimated to raised.
// Raising must not make a job impossible: the result is above what the limit can ever let through only if the estimate
// is.
func bounded(rules *bucket.Rules, limit int, estimated, raised int64) int64 {
	most := int64(ingest.MostUnits)
	for i := range rules.Shared {
		if l := &rules.Shared[i]; !l.Shadow && (i == limit || limit < 0 && l.Budget != nil) {
			most = min(most, rules.Capacity(*l))
		}
	}
	return max(min(estimated, raised), min(raised, most))
}

// recall learns from the ledger's record of another process's call, which took more than was estimated for it. It
// ignores records with unsettled units: such a call was charged the most that other answers reported, which says
// nothing about its estimate. A job of a pack was charged only its part of what the call took of budgets, so recall
// multiplies that by the number of jobs.
func (s *settlements) recall(c *ledger.Record, budgets []string) {
	if len(c.Unsettled) > 0 || c.Billed == deadletter.NotBilled || min(len(c.Costs), len(c.Estimated)) < len(c.Limits) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, limit := range c.Limits {
		took := c.Costs[i]
		if c.Polled { // the record of an operation's end says what the operation took beyond its call
			if c.Operation == nil || i >= len(c.Operation.Costs) || took == 0 {
				continue
			}
			took = min(took+c.Operation.Costs[i], ingest.MostUnits)
		}
		parts := int64(1)
		if c.Pack != nil && slices.Contains(budgets, limit) {
			parts = int64(c.Pack.Of)
		}
		sums := s.low.of(estimateOf{limit: limit})
		sums.hear(parts*c.Estimated[i], parts*took)
		sums.recalled = sums.n
	}
}

// raiseSum returns the units of a limit, or the price, that a call must reserve because earlier calls took more than
// the sums of their estimates. It returns 0 if the estimates of the single terms say more than the sums. The sums say
// more in two cases. First, records of the ledger have only sums. Second, a term that expects nothing keeps its
// estimate of 0, so the estimates of the other terms must cover what it takes.
func (s *settlements) raiseSum(rules *bucket.Rules, limit int, of ingest.Cost, numbers []int64, estimate int64) (units int64) {
	nothing := false
	for i := range of {
		nothing = nothing || numbers[i] == 0 && of[i].Settle.IsPlace()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range limitsOf(rules, limit) {
		sums := s.low[estimateOf{limit: name}]
		if sums == nil || !nothing && !sums.fromLedger() {
			continue
		}
		if units = max(units, sums.raise(estimate)); estimate == 0 {
			units = max(units, sums.unexpected)
		}
	}
	return units
}

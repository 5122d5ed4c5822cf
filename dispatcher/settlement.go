package dispatcher

import (
	"context"
	"slices"
	"sync"
	"time"

	"weir/bucket"
	"weir/deadletter"
	"weir/dispatcher/httpcall"
	"weir/dispatcher/lane"
	"weir/dispatcher/settle"
	"weir/ingest"
)

// settlements remembers the numbers that an api's answers have reported, for each place in an answer. It is safe for
// concurrent use.
type settlements struct {
	mu      sync.Mutex // guards what follows
	reports map[ingest.Source]*reports
	low     shortfalls
	silent  bool // the last answer that should have reported the units did not
}

// reports holds what answers reported at one place. If the answer to a call reports nothing there, the call is charged
// at least most, because it may have used that much.
type reports struct {
	most   int64
	recent [learnedFrom]int64 // the newest reports, in a ring
	n      int                // reports so far
}

// Bounds of what the estimate of a term learns from. A percentile needs at least leastTold reports, and only the newest
// learnedFrom reports count.
const (
	learnedFrom = 256
	leastTold   = 16
	// mostPlaces bounds the places that are remembered. It is more than a configuration has, because the configuration
	// may change.
	mostPlaces = 1024
)

// hear notes the numbers that a billed answer reports. It notes each place once, even if several costs use it.
func (s *settlements) hear(api *httpcall.API, r httpcall.Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var heard []ingest.Source
	for of := range api.Costs() {
		for i := range of {
			at := of[i].Settle
			n, ok := r.Number(at)
			if !at.IsPlace() || !ok || slices.Contains(heard, at) {
				continue
			}
			heard = append(heard, at)
			t := s.reports[at]
			if t == nil {
				if t = new(reports); len(s.reports) >= mostPlaces {
					s.reports = nil
				}
				if s.reports == nil {
					s.reports = map[ingest.Source]*reports{}
				}
				s.reports[at] = t
			}
			t.most, t.recent[t.n%learnedFrom] = max(t.most, n), n
			t.n++
		}
	}
}

// learned lowers the estimated numbers of a cost to percentiles of the numbers that answers reported lately. It returns
// true if it had a percentile for any of them.
func (s *settlements) learned(of ingest.Cost, numbers []int64) (some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range of {
		if of[i].Learn == 0 {
			continue
		}
		if t := s.reports[of[i].Settle]; t != nil && t.n >= leastTold {
			recent := slices.Clone(t.recent[:min(t.n, learnedFrom)])
			slices.Sort(recent)
			numbers[i], some = min(numbers[i], recent[(len(recent)*of[i].Learn+99)/100-1]), true
		}
	}
	return some
}

// most returns the largest number that answers have reported at a place.
func (s *settlements) most(at ingest.Source) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.reports[at]; t != nil {
		return t.most
	}
	return 0
}

// raise raises those estimated numbers of a cost that recent answers have proved too low.
func (s *settlements) raise(of ingest.Cost, numbers []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.low.raise(of, numbers)
}

// settle replaces the estimated numbers of a cost by those that an answer reports, and returns the units. If the answer
// does not report a number, settle takes the larger of the estimate and the largest number that any answer has
// reported. If the answer broke off, settle first raises the estimates as for a reservation. A number that such an
// answer reported before it broke off counts if it is larger. silent says that the answer does not report every number:
// the caller then charges at least what the call has reserved.
func (s *settlements) settle(of ingest.Cost, numbers []int64, r httpcall.Response) (units int64, silent bool) {
	if r.Cut {
		s.raise(of, numbers)
	}
	for i := range of {
		if !of[i].Settle.IsPlace() {
			continue
		}
		switch n, ok := r.Number(of[i].Settle); {
		case ok && !r.Cut:
			numbers[i] = n
		case ok:
			numbers[i], silent = max(numbers[i], n), true
		default:
			numbers[i], silent = max(numbers[i], s.most(of[i].Settle)), true
		}
	}
	return of.Sum(numbers), silent
}

// settleFree is settle for a call that is not billed. A number that the answer does not report counts as 0. If any
// number is missing, the call is charged at least the units that it had reserved.
func (s *settlements) settleFree(of ingest.Cost, numbers []int64, reserved int64, r httpcall.Response) int64 {
	silent := false
	for i := range of {
		if !of[i].Settle.IsPlace() {
			continue
		}
		n, ok := r.Number(of[i].Settle)
		if numbers[i] = 0; ok {
			numbers[i] = n
		}
		silent = silent || !ok || r.Cut
	}
	if silent {
		return max(reserved, of.Sum(numbers))
	}
	return of.Sum(numbers)
}

// toll returns what a job's call must reserve, and its price. If answers have proved the estimates too low, both are
// computed from raised estimates. Learned percentiles lower only what is reserved. A call whose units depend on its
// answer reserves at least one unit, so that a used-up limit does not let it pass.
func (s *settlements) toll(by *lane.Terms, j *ingest.Job) (reserve lane.Toll, price int64, err error) {
	reserve, price = s.tollOf(&by.API.Rules, func(units lane.Units) (t lane.Toll) {
		t, err = by.TollBy(j, units)
		return t
	})
	return reserve, price, err
}

// tollOf is toll for a call whose estimated numbers come from by.
func (s *settlements) tollOf(rules *bucket.Rules, by func(lane.Units) lane.Toll) (reserve lane.Toll, price int64) {
	var estimated map[int]int64 // estimates of the costs that answers settle, by limit
	reserve = by(func(limit int, of ingest.Cost, numbers []int64) int64 {
		estimate := of.Sum(numbers)
		if !of.Settles() {
			if limit == lane.OfPrice {
				price = estimate
			}
			return estimate
		}
		if estimated == nil {
			estimated = map[int]int64{}
		}
		estimated[limit] = estimate
		units := s.raiseSum(rules, limit, of, numbers, estimate)
		s.raise(of, numbers)
		units = max(units, of.Sum(numbers))
		if limit == lane.OfPrice {
			price = units
		}
		if s.learned(of, numbers) {
			units = of.Sum(numbers)
		}
		return max(1, bounded(rules, limit, estimate, units))
	})
	if estimated != nil {
		reserve.Estimates = estimatesOf(rules, estimated, reserve.Costs)
	}
	return reserve, price
}

// estimatesOf returns the estimated units of each shared limit. The units of a budget are those of the price. If a cost
// does not depend on the answer, its estimate is what was reserved.
func estimatesOf(rules *bucket.Rules, estimated map[int]int64, reserved []int64) []int64 {
	units := slices.Clone(reserved)
	for i := range units {
		of := i
		if rules.Shared[i].Budget != nil {
			of = lane.OfPrice
		}
		if n, ok := estimated[of]; ok {
			units[i] = n
		}
	}
	return units
}

// settled is what a call took.
type settled struct {
	actual []int64  // units of each shared limit; nil: as reserved
	price  int64    // in millionths
	silent []string // limits whose units the answer should have reported, and did not
}

// settleUnits returns what a call really took, as its answer reports it. The call took 0 from a quota if nothing was
// sent, and 0 from a budget if it was not billed. Units of a rate that were reserved and not used count as used,
// because the time of the call is over.
func (w *caller) settleUnits(j *lane.Job, r httpcall.Response) (s settled) {
	out := httpcall.Judge(j.Terms.API, r, time.Now())
	if out.Verdict == httpcall.Submitted { // only the end of its operation tells more
		return settled{price: j.Bill.Reserved}
	}
	free := out.Billed == deadletter.NotBilled
	if !free && !r.Cut {
		w.settlements.hear(j.Terms.API, r)
	}
	var proved comparison
	took, err := tollBy(j, func(limit int, of ingest.Cost, numbers []int64) int64 {
		switch {
		case free && limit == lane.OfPrice:
			return of.Sum(numbers)
		case free && limit < len(j.Costs):
			return w.settlements.settleFree(of, numbers, j.Costs[limit], r)
		}
		estimate := of.Sum(numbers)
		if !free {
			proved.terms(of, numbers, &r)
		}
		units, silent := w.settlements.settle(of, numbers, r)
		switch {
		case silent:
			s.silent = append(s.silent, limitsOf(&j.Terms.API.Rules, limit)...)
			return max(units, reservedOf(j, limit))
		case !free && of.Settles():
			proved.sums(&j.Terms.API.Rules, limit, estimate, units)
		}
		return units
	})
	w.settlements.learn(proved)
	w.settlements.mu.Lock()
	news := len(s.silent) > 0 && !w.settlements.silent
	w.settlements.silent = len(s.silent) > 0 || free && w.settlements.silent
	w.settlements.mu.Unlock()
	if err != nil { // the message was read before the call, so this does not happen
		return settled{price: j.Bill.Reserved}
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

// reservedOf returns the units of a limit that a job's call has reserved, or its price if limit is lane.OfPrice.
func reservedOf(j *lane.Job, limit int) int64 {
	switch {
	case limit == lane.OfPrice:
		return j.Bill.Reserved
	case limit < len(j.Costs):
		return j.Costs[limit]
	}
	return 0
}

// tollBy returns what the call of a job takes. If the job leads a pack, it returns what the pack's call takes.
func tollBy(j *lane.Job, units lane.Units) (lane.Toll, error) {
	if j.Leads != nil {
		return j.Leads.Sum.By(units), nil
	}
	return j.Terms.TollBy(j.Message, units)
}

// beyond returns how much more a job's operation took, by its final answer, than its call was charged. It charges the
// difference to the limits that all keys share. If the operation took less, nothing is given back: the time of the call
// is over, and budgets and quotas have since granted other calls by the former count. If the limits have changed since
// the call, beyond charges only money.
func (w *caller) beyond(j *lane.Job, r httpcall.Response) (b settle.Beyond) {
	op := j.Operation
	var proved comparison
	estimated, untold := map[int]int64{}, false
	took, err := j.Terms.TollBy(j.Message, func(limit int, of ingest.Cost, numbers []int64) int64 {
		if !of.Settles() {
			return 0 // no answer changes this cost, and the price may have changed since the call
		}
		estimate := of.Sum(numbers)
		estimated[limit] = estimate
		proved.terms(of, numbers, &r)
		units, silent := w.settlements.settle(of, numbers, r)
		if untold = untold || silent; !silent {
			proved.sums(&j.Terms.API.Rules, limit, estimate, units)
		}
		return units
	})
	if err != nil {
		return b // the message was read before the call, so this does not happen
	}
	w.settlements.learn(proved)
	if !r.Cut {
		w.settlements.hear(j.Terms.API, r)
	}
	b.Price = max(0, took.Price-op.Price)
	if op.Limits != j.Terms.Limits || len(op.Costs) != len(took.Costs) {
		return b
	}
	if b.Units = make([]int64, len(took.Costs)); !untold {
		b.Estimates = estimatesOf(&j.Terms.API.Rules, estimated, op.Costs)
	}
	actual, more := slices.Clone(op.Costs), false
	for i := range actual {
		if b.Units[i] = max(0, took.Costs[i]-op.Costs[i]); b.Units[i] > 0 {
			actual[i], more = took.Costs[i], true
		}
	}
	if more {
		now := bucket.Grant{At: w.Now(), Serial: noGrant}
		w.grants.settle(context.Background(), []bucket.Use{{Key: j.Queue.Key, Grant: now, Costs: op.Costs, Actual: actual}})
	}
	return b
}

// noGrant is a serial that no grant has. A use with it charges the present limits, and ends no grant.
const noGrant = 1 << 52

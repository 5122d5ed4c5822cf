package whatif

import (
	"context"
	"math"
	"slices"

	"weir/bucket"
)

// precision is how far a found factor may be above the smallest one, as a part of the found factor.
const precision = 0.05

// least returns the smallest factor above low and up to most for which ok is true, within precision. It returns 0 if
// there is none. ok must be false for low, and if it is true for a factor, it must be true for every greater one.
func least(low, most float64, ok func(factor float64) (bool, error)) (float64, error) {
	high := min(most, 2*low)
	for {
		yes, err := ok(high)
		if err != nil {
			return 0, err
		}
		if yes {
			break
		}
		if high >= most {
			return 0, nil
		}
		low, high = high, min(most, 2*high)
	}
	for high-low > high*precision {
		middle := (low + high) / 2
		yes, err := ok(middle)
		if err != nil {
			return 0, err
		}
		if yes {
			high = middle
		} else {
			low = middle
		}
	}
	return high, nil
}

// Breaks returns the smallest load at which a job overflows or a budget stops a job, within a twentieth. The parts must
// bear a load of 1. The outcomes are those of a run at that load, which ended with the first such job. Breaks returns 0
// if the parts bear every load up to most, which may be from 1 to MostLoad. It runs the traces some eight times.
func Breaks(ctx context.Context, parts []Part, most float64, progress func(jobs int)) (load float64, outcomes []*Outcome, err error) {
	isBroken := func(t *tally) bool { return t.overflowed+t.overBudget > 0 }
	load, err = least(1, most, func(load float64) (bool, error) {
		all, err := runUntil(ctx, parts, load, isBroken, progress)
		if err != nil {
			return false, err
		}
		broken := slices.ContainsFunc(all, func(o *Outcome) bool { return o.Overflowed+o.OverBudget > 0 })
		if broken {
			outcomes = all
		}
		return broken, nil
	})
	return load, outcomes, err
}

// mostFaster bounds the factor by which Faster raises rates.
const mostFaster = 64

// Faster returns the smallest factor by which the rates of all buckets must be raised so that nothing overflows with
// the present capacities, within a twentieth. It tries no factor below from. It returns 0 if no factor up to 64 is
// enough: jobs come at once, or another limit makes them wait. It runs the traces some ten times, or only once if from
// is enough.
func Faster(ctx context.Context, parts []Part, from float64, progress func(jobs int)) (float64, error) {
	overflows := func(t *tally) bool { return t.overflowed > 0 }
	isEnough := func(factor float64) (bool, error) {
		faster := slices.Clone(parts)
		for i := range faster {
			faster[i].Candidate = faster[i].Candidate.Faster(factor)
		}
		all, err := runUntil(ctx, faster, 1, overflows, progress)
		return err == nil && !slices.ContainsFunc(all, func(o *Outcome) bool { return o.Overflowed > 0 }), err
	}
	yes, err := isEnough(from)
	switch {
	case err != nil || !yes && from >= mostFaster:
		return 0, err
	case yes:
		return from, nil
	}
	return least(from, mostFaster, isEnough)
}

// Faster returns the candidate with the rates of its buckets multiplied by a factor of 1 or more, rounded up to whole
// counts.
func (c Candidate) Faster(factor float64) Candidate {
	raise := func(r bucket.Rate) bucket.Rate {
		r.Count = int64(math.Ceil(float64(r.Count) * factor))
		return r
	}
	c.Rules.Key.Rate = raise(c.Rules.Key.Rate)
	c.Rules.Overrides = slices.Clone(c.Rules.Overrides)
	for i := range c.Rules.Overrides {
		if r := c.Rules.Overrides[i].Rate; r != nil {
			raised := raise(*r)
			c.Rules.Overrides[i].Rate = &raised
		}
	}
	return c
}

// WithCapacity returns the candidate with one capacity for all keys, and without max_wait. 0 stands for the largest
// capacity that a configuration may have.
func (c Candidate) WithCapacity(capacity int64) Candidate {
	if capacity == 0 {
		capacity = mostCapacity
	}
	c.Rules.Key.Capacity, c.Rules.Key.MaxWait = capacity, 0
	c.Rules.Overrides = slices.Clone(c.Rules.Overrides)
	for i := range c.Rules.Overrides {
		c.Rules.Overrides[i].Capacity, c.Rules.Overrides[i].MaxWait = nil, nil
	}
	return c
}

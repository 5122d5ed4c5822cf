package whatif

import (
	"context"
	"fmt"
	"time"

	"weir/bucket"
)

// mostCapacity is the largest capacity that a configuration may have.
const mostCapacity = 10_000_000

// Suggest finds the smallest capacity of a candidate at which no job overflows. If bound is above 0, it also finds the
// smallest whole count per period of the rate at which no job waits longer than bound. It returns the outcome of a run
// with the suggestion. Shared limits and rates of single keys stay unchanged. max_wait and the capacities of single
// keys are ignored. Suggest runs the trace twice, or some twenty times if bound is above 0.
func Suggest(ctx context.Context, t *Trace, c Candidate, bound time.Duration, progress func(jobs int)) (*Outcome, error) {
	c = c.WithCapacity(0)
	if bound > 0 {
		if err := slowest(ctx, t, &c, bound, progress); err != nil {
			return nil, err
		}
	}
	o, err := Run(ctx, t, &c, progress)
	if err != nil {
		return nil, err
	}
	if o.Overflowed > 0 {
		return nil, fmt.Errorf("the largest capacity that a configuration may have is too small: %d jobs overflow one of %d", o.Overflowed, mostCapacity)
	}
	// The run held this many jobs in one bucket, so this capacity is enough.
	c.Rules.Key.Capacity = int64(max(1, o.Deepest.Depth))
	if o, err = Run(ctx, t, &c, progress); err != nil {
		return nil, err
	}
	o.Suggested = true
	return o, nil
}

// slowest sets the smallest count of the candidate's rate at which no job waits longer than bound. It assumes that a
// faster rate makes no job wait longer.
func slowest(ctx context.Context, t *Trace, c *Candidate, bound time.Duration, progress func(jobs int)) error {
	rate := c.Rules.Key.Rate
	fits := func(count int64) (bool, error) {
		c.Rules.Key.Rate = rate
		c.Rules.Key.Rate.Count = count
		if rate.Counted() == bucket.ByWindow {
			c.Rules.Key.Rate.Burst = min(rate.Burst, count)
		}
		o, err := Run(ctx, t, c, progress)
		return err == nil && o.Wait.Max <= float64(bound.Microseconds())/1000, err
	}
	least, most := int64(0), int64(1) // least is always too small
	for {
		ok, err := fits(most)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		if most > int64(rate.Per/time.Microsecond)/2 {
			return fmt.Errorf("at no rate of a bucket do all jobs wait at most %s: another limit, in_flight or the time of calls makes them wait", bound)
		}
		least, most = most, 2*most
	}
	for most-least > 1 {
		middle := least + (most-least)/2
		ok, err := fits(middle)
		switch {
		case err != nil:
			return err
		case ok:
			most = middle
		default:
			least = middle
		}
	}
	_, err := fits(most)
	return err
}

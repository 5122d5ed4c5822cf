package lane

import (
	"fmt"

	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// Terms are an api's configuration, and the connections over which its calls are made. They are never changed, only
// replaced. A job is made ready, called and judged by the same terms, even if new terms come in between. If new terms
// come while a ready job has no slot yet, the job is made ready again by the new ones.
type Terms struct {
	API    *httpcall.API
	Call   *httpcall.Client
	Policy *schedule.Policy     // the schedule's part of the configuration
	Polls  *httpcall.Operations // nil: the configuration has no operation
	Limits uint64               // hash of the shared limits' names
	Intent int64                // most bytes of an intent
}

// NewTerms returns the terms of a configuration. If possible, they take over the connections of the former terms.
func (e *Env) NewTerms(api *httpcall.API, former *Terms) *Terms {
	var before *httpcall.Client
	if former != nil {
		before = former.Call
	}
	t := &Terms{API: api, Call: httpcall.NewClient(api, "weir/"+e.Version, schedule.MaxCalls, before), Policy: policyOf(api), Limits: sumOfLimits(api), Intent: intentBytes(api)}
	if api.Operation != nil {
		t.Polls = httpcall.NewOperations(api, "weir/"+e.Version)
	}
	return t
}

func policyOf(api *httpcall.API) *schedule.Policy {
	r := &api.Retry
	return &schedule.Policy{
		Rules: api.Rules, Price: api.Price, Settles: api.PriceTerms().Settles(), Breaker: api.Breaker, Reuse: api.Reuse != nil, Packs: packingOf(api),
		Retry: schedule.Retry{Attempts: r.Attempts, Min: r.Min, Max: r.Max, HoldAPI: r.HoldAPI, HoldAccount: r.HoldAccount, Adaptive: r.Adaptive},
	}
}

func packingOf(api *httpcall.API) *schedule.Packing {
	if api.Pack == nil {
		return nil
	}
	return &schedule.Packing{Jobs: api.Pack.Jobs, Wait: api.Pack.Wait}
}

// Bind sets the terms of a job.
func (j *Job) Bind(by *Terms) { j.Terms, j.Policy = by, by.Policy }

// Toll is what a call takes: units from each shared limit, and money in millionths.
type Toll struct {
	Costs []int64
	Price int64
	// Estimates are the job's own estimates of the units of each shared limit. Costs may differ from them, because
	// recent answers have raised or lowered it. Estimates is nil if no answer says what calls take.
	Estimates []int64
}

// OfPrice is passed to Units as the limit for the price of a call, instead of the index of a shared limit.
const OfPrice = -1

// Units returns the units of a cost whose terms have these numbers. limit is the index of the cost's shared limit, or
// OfPrice. Units may change numbers.
type Units func(limit int, of ingest.Cost, numbers []int64) int64

// Toll returns what a job's call takes by the configured estimates.
func (c *Terms) Toll(j *ingest.Job) (Toll, error) {
	return c.TollBy(j, func(_ int, of ingest.Cost, numbers []int64) int64 { return of.Sum(numbers) })
}

// TollBy returns what a job's call takes. It calls units for each cost, with the numbers of the job's estimates.
func (c *Terms) TollBy(j *ingest.Job, units Units) (t Toll, err error) {
	prices := c.API.PriceTerms()
	numbers, err := prices.Numbers(j)
	if err != nil {
		return t, fmt.Errorf("price: %w", err)
	}
	t.Price = units(OfPrice, prices, numbers)
	shared := c.API.Rules.Shared
	if len(shared) == 0 {
		return t, nil
	}
	t.Costs = make([]int64, len(shared))
	for i := range shared {
		if shared[i].Budget != nil {
			t.Costs[i] = t.Price
			continue
		}
		numbers, err := shared[i].Cost.Numbers(j)
		switch {
		case err != nil && shared[i].Shadow:
			t.Costs[i] = 1 // a shadow limit refuses nothing
		case err != nil:
			return t, fmt.Errorf("limit %s: %w", shared[i].Name, err)
		default:
			t.Costs[i] = units(i, shared[i].Cost, numbers)
		}
	}
	return t, nil
}

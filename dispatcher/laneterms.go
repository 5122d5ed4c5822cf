package dispatcher

import (
	"fmt"

	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// terms are an api's configuration and the connections to it, by which its calls are made. They are never changed, only
// replaced. A job is made ready, called and judged by the same terms, so that a change in between mixes nothing. A
// ready job that has no slot yet when new terms come is made ready again by the new ones.
type terms struct {
	api    *httpcall.API
	call   *httpcall.Client
	policy *schedule.Policy // the schedule's part of it
	limits uint64           // hash of the shared limits' names
}

func (e *env) newTerms(api *httpcall.API, former *terms) *terms {
	var before *httpcall.Client
	if former != nil {
		before = former.call
	}
	return &terms{api, httpcall.NewClient(api, "weir/"+e.version, schedule.MaxCalls, before), policyOf(api), sumOfLimits(api)}
}

func policyOf(api *httpcall.API) *schedule.Policy {
	r := &api.Retry
	return &schedule.Policy{
		Rules: api.Rules, Price: api.Price, Breaker: api.Breaker,
		Retry: schedule.Retry{Attempts: r.Attempts, Min: r.Min, Max: r.Max, HoldAPI: r.HoldAPI, Adaptive: r.Adaptive},
	}
}

// bind sets the terms of a job.
func (j *job) bind(by *terms) { j.terms, j.Policy = by, by.policy }

// costs returns the units that the job takes from each shared limit.
func (c *terms) costs(j *ingest.Job) ([]int64, error) {
	shared := c.api.Rules.Shared
	if len(shared) == 0 {
		return nil, nil
	}
	costs := make([]int64, len(shared))
	for i := range shared {
		if shared[i].Budget != nil {
			costs[i] = c.api.Price
			continue
		}
		cost, err := shared[i].Cost.FromJob().Of(j)
		if err != nil && shared[i].Shadow {
			cost, err = 1, nil // a shadow limit refuses nothing
		}
		if err != nil {
			return nil, fmt.Errorf("limit %s: %w", shared[i].Name, err)
		}
		costs[i] = cost
	}
	return costs, nil
}

package lane

import (
	"fmt"

	"weir/dispatcher/httpcall"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// Terms are an api's configuration and the connections to it, by which its calls are made. They are never changed, only
// replaced. A job is made ready, called and judged by the same terms, so that a change in between mixes nothing. A
// ready job that has no slot yet when new terms come is made ready again by the new ones.
type Terms struct {
	API    *httpcall.API
	Call   *httpcall.Client
	Policy *schedule.Policy // the schedule's part of it
	Limits uint64           // hash of the shared limits' names
}

// NewTerms returns the terms of a configuration. They take over the connections of the former terms if they can.
func (e *Env) NewTerms(api *httpcall.API, former *Terms) *Terms {
	var before *httpcall.Client
	if former != nil {
		before = former.Call
	}
	return &Terms{api, httpcall.NewClient(api, "weir/"+e.Version, schedule.MaxCalls, before), policyOf(api), sumOfLimits(api)}
}

func policyOf(api *httpcall.API) *schedule.Policy {
	r := &api.Retry
	return &schedule.Policy{
		Rules: api.Rules, Price: api.Price, Breaker: api.Breaker,
		Retry: schedule.Retry{Attempts: r.Attempts, Min: r.Min, Max: r.Max, HoldAPI: r.HoldAPI, Adaptive: r.Adaptive},
	}
}

// Bind sets the terms of a job.
func (j *Job) Bind(by *Terms) { j.Terms, j.Policy = by, by.Policy }

// Costs returns the units that the job takes from each shared limit.
func (c *Terms) Costs(j *ingest.Job) ([]int64, error) {
	shared := c.API.Rules.Shared
	if len(shared) == 0 {
		return nil, nil
	}
	costs := make([]int64, len(shared))
	for i := range shared {
		if shared[i].Budget != nil {
			costs[i] = c.API.Price
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

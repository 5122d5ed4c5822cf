package judge

import (
	"encoding/json"
	"strings"

	"weir/cmd/internal/fakeapi"
	"weir/cmd/weir-torture/internal/plan"
)

// ByJob returns the calls by time. A call of several jobs occurs once for each job, in their order, with the job's
// body.
func ByJob(calls []fakeapi.Arrival) []fakeapi.Arrival {
	var all []fakeapi.Arrival
	for _, a := range fakeapi.ByTime(calls) {
		jobs := jobsOf(&a)
		if jobs == nil {
			all = append(all, a)
		}
		for _, job := range jobs {
			a.Body = job
			all = append(all, a)
		}
	}
	return all
}

// jobsOf returns the jobs of a call. It returns nil if the body is no array, or belongs to a large job.
func jobsOf(a *fakeapi.Arrival) (jobs []json.RawMessage) {
	if strings.HasPrefix(a.Query, plan.JobQuery) || json.Unmarshal(a.Body, &jobs) != nil {
		return nil
	}
	return jobs
}

// calls returns the calls by job, as ByJob does.
func (e *Evidence) calls() []fakeapi.Arrival {
	if e.jobCalls == nil {
		e.jobCalls = ByJob(e.Arrivals)
	}
	return e.jobCalls
}

// judgePacks counts the calls of several jobs, and those of them that were under way at a kill.
func (e *Evidence) judgePacks(r *Report) {
	for i := range e.Arrivals {
		a := &e.Arrivals[i]
		if len(jobsOf(a)) < 2 {
			continue
		}
		if r.Packs++; e.underWay([]*fakeapi.Arrival{a}, 0) {
			r.PacksKilled++
		}
	}
}

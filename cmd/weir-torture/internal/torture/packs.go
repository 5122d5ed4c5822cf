package torture

import (
	"encoding/json"
	"strings"
	"time"

	"weir/cmd/internal/fakeapi"
)

// mostPacked bounds the jobs of a call.
const mostPacked = 100

// packWait is how long the first job of a pack waits for others of its key.
const packWait = time.Second

// keepBody returns how many bytes of a call's body the api's ledger must keep to show its jobs.
func (o *Options) keepBody() int {
	if o.Settled {
		return 2 * 64 // its tokens, too
	}
	return 64 * max(1, o.Pack)
}

// byJob returns the calls by time. A call of several jobs occurs once for each job, in their order, with the job's
// body.
func byJob(calls []fakeapi.Arrival) []fakeapi.Arrival {
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
	if strings.HasPrefix(a.Query, jobQuery) || json.Unmarshal(a.Body, &jobs) != nil {
		return nil
	}
	return jobs
}

// calls returns the calls by job, as byJob does.
func (e *Evidence) calls() []fakeapi.Arrival {
	if e.jobCalls == nil {
		e.jobCalls = byJob(e.Arrivals)
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

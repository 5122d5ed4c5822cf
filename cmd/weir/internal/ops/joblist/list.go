// Package joblist lists jobs in every state. Jobs that wait or are being called come from the owners of their queues.
// Jobs that have ended come from the index that dispatching replicas keep (jobindex).
//
// A list has pages. The jobs that reached their state last come first. The field Next of a page is the After of the
// following page. A page may have fewer jobs than its limit although another page follows, because one question reads
// the headers of only a bounded number of waiting jobs. The package neither reads nor returns the body of a job.
package joblist

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/deadview"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/cmd/weir/internal/serve/admin"
	"weir/dispatcher/desk"
	"weir/dispatcher/ledger"
	"weir/dispatcher/schedule"
	"weir/ingest"
)

// State is the state of a job as the list of jobs shows it: one of the constants below.
type State string

// The states.
const (
	Waiting State = "waiting"
	Calling State = "calling" // being called, or its outcome is being stored
	Polling State = "polling" // the api has accepted it, and weir polls its operation
	Done    State = "done"    // it has a result, or had one
	Dead    State = "dead"    // it is a dead letter
)

// States returns all states, in the order in which a job passes through them.
func States() []State { return []State{Waiting, Calling, Polling, Done, Dead} }

// Choice selects jobs by texts that users wrote. A field with the zero value selects all jobs.
type Choice struct {
	API    string
	Key    string // of this api, or of every api if API is ""
	State  string
	Status string // of the last answer: 503, or 5xx; selects only jobs that have ended
	Since  string // a time, or how long ago: jobs that reached their state at or after it
	Until  string
	ID     string // a part of the job's id
	After  string // Next of the preceding page
	Limit  int
}

// Question is a checked Choice.
type Question struct {
	jobindex.Filter
	State State // "": any
	Limit int
}

// MostListed bounds the jobs of a page.
const MostListed = desk.MaxInspected

// Read checks and converts a choice. An error names the wrong field.
func (c *Choice) Read(now time.Time) (Question, error) {
	letters := deadview.Choice{API: c.API, Key: c.Key, Since: c.Since, Until: c.Until, Status: c.Status}
	f, err := letters.Filter(now)
	if err != nil {
		return Question{}, err
	}
	q := Question{Filter: jobindex.Filter{API: c.API, Key: c.Key, Status: f.Status, Since: f.Since, Until: f.Until, Part: c.ID}, State: State(c.State), Limit: c.Limit}
	switch {
	case c.State != "" && !slices.Contains(States(), q.State):
		return q, fmt.Errorf("state %q: must be one of waiting, calling, polling, done, dead", c.State)
	case c.Limit < 1 || c.Limit > MostListed:
		return q, fmt.Errorf("limit is 1 to %d", MostListed)
	case len(c.ID) > ingest.MaxIDBytes:
		return q, fmt.Errorf("id: must have at most %d bytes", ingest.MaxIDBytes)
	}
	if err := q.After.UnmarshalText([]byte(c.After)); err != nil {
		return q, fmt.Errorf("after: %w", err)
	}
	return q, nil
}

// Job is a job in a list.
type Job struct {
	API   string `json:"api"`
	Key   string `json:"key"`
	Job   string `json:"job"`
	State State  `json:"state"`
	// At is when it came to its state: when it was accepted, called, or when its end was stored.
	At       time.Time `json:"at"`
	Accepted time.Time `json:"accepted,omitzero"` // absent if it is not known
	Status   int       `json:"status,omitempty"`  // of the last answer; absent if there was none, or the job has not ended
	Calls    int       `json:"calls"`             // so far; of a dead letter only those that counted as attempts
	// Phase is how far an unfinished job has come.
	Phase  schedule.JobPhase `json:"phase,omitempty"`
	Reason string            `json:"reason,omitempty"` // of a dead letter
	Letter uint64            `json:"letter,omitempty"` // its number
}

// Page is a part of a list of jobs, the newest first.
type Page struct {
	Jobs []Job `json:"jobs"`
	// Next is the after of the next page; absent on the last.
	Next string `json:"next,omitempty"`
	// Since is back to when jobs that have ended are listed; absent if all that are kept are.
	Since time.Time `json:"since,omitzero"`
	// Building says that weir began lately and still reads older jobs: Since will become earlier.
	Building bool `json:"building,omitempty"`
	// Behind is how many of the newest records and letters were not read in time: their jobs are not listed yet.
	Behind uint64 `json:"behind,omitempty"`
	// Missing is how many records of calls are lost or cannot be read: jobs that were done may be missing.
	Missing int `json:"missing,omitempty"`
	// Silent says which queues could not be asked, and why.
	Silent []string `json:"silent,omitempty"`
}

// placed is a job with its place in the list.
type placed struct {
	Job
	place jobindex.Place
}

// List returns a page of the jobs that a question selects. It blocks until the replicas have answered, for some seconds
// at most.
func List(ctx context.Context, c *connect.Connection, q *Question) (Page, error) {
	page := Page{Jobs: []Job{}}
	var all []placed
	var end jobindex.Place // after this place, all may lack jobs; zero: it lacks none
	if q.wants(Waiting) || q.wants(Calling) || q.wants(Polling) {
		asked := admin.UnfinishedJobs{
			Filter: q.Filter, Waiting: q.wants(Waiting), Calling: q.wants(Calling), Polled: q.wants(Polling), Limit: q.Limit,
		}
		found, err := asked.Unfinished(c)
		if err != nil {
			return page, err
		}
		for i := range found.Jobs {
			all = append(all, ofUnfinished(&found.Jobs[i]))
		}
		if page.Silent = found.Silent; !found.Reached.IsZero() {
			end = jobindex.Place{At: found.Reached.UnixNano() - 1} // after all jobs of that moment
		}
	}
	if q.wants(Done) || q.wants(Dead) {
		asked := jobindex.Question{Filter: q.Filter, Done: q.wants(Done), Dead: q.wants(Dead), Limit: q.Limit}
		found, err := admin.EndedJobs(ctx, c, &asked)
		if err != nil {
			return page, err
		}
		for i := range found.Jobs {
			all = append(all, ofEnded(&found.Jobs[i]))
		}
		page.Since, page.Building, page.Behind, page.Missing = found.Since, found.Building, found.Behind, found.Missing
		if n := len(found.Jobs); found.More && n > 0 {
			if last := found.Jobs[n-1].Place; end == (jobindex.Place{}) || last.Compare(end) < 0 {
				end = last
			}
		}
	}
	return page.of(all, q.Limit, end), nil
}

// of puts the first limit jobs on the page, without the jobs after end. A zero end leaves out none.
func (p Page) of(all []placed, limit int, end jobindex.Place) Page {
	slices.SortFunc(all, func(a, b placed) int { return a.place.Compare(b.place) })
	cut := end != (jobindex.Place{})
	if behind := slices.IndexFunc(all, func(j placed) bool { return cut && j.place.Compare(end) > 0 }); behind >= 0 {
		all = all[:behind]
	}
	switch {
	case len(all) > limit:
		all = all[:limit]
		p.Next = all[limit-1].place.String()
	case cut:
		p.Next = end.String()
	}
	for i := range all {
		p.Jobs = append(p.Jobs, all[i].Job)
	}
	return p
}

func (q *Question) wants(s State) bool { return q.State == "" || q.State == s }

func ofUnfinished(j *desk.UnfinishedJob) placed {
	state := Waiting
	switch {
	case j.Calling():
		state = Calling
	case j.Phase == schedule.JobPolling:
		state = Polling
	}
	return placed{Job{API: j.API, Key: j.Key, Job: j.Job, State: state, At: j.At.UTC(), Accepted: j.Accepted.UTC(), Calls: j.Calls, Phase: j.Phase}, admin.JobPlace(j)}
}

func ofEnded(e *jobindex.Ended) placed {
	j := Job{API: e.API, Key: e.Key, Job: e.Job, State: Done, At: time.Unix(0, e.Place.At).UTC(), Accepted: e.Accepted, Status: e.Status, Calls: e.Calls, Letter: e.Letter()}
	if e.Outcome != ledger.Done {
		j.State, j.Reason = Dead, e.Outcome
	}
	return placed{j, e.Place}
}

// Empty returns the error for a page without jobs. The error has an exit code.
func (p *Page) Empty() error {
	return cli.NotFound(errors.New(cmp.Or(p.olderText(), "no job matches")))
}

func (p *Page) olderText() string {
	switch {
	case p.Next != "":
		return "no job matches so far: --after " + p.Next + " looks further"
	case !p.Since.IsZero():
		return "no job matches; jobs that ended before " + cli.ClockTime(p.Since) + " are not listed"
	}
	return ""
}

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/cmd/weir/internal/ops/jobindex"
	"weir/deadletter"
	"weir/dispatcher/desk"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// UnfinishedJobs is a question about jobs that wait or whose call is running.
type UnfinishedJobs struct {
	jobindex.Filter
	Waiting bool `json:"waiting,omitempty"`
	Calling bool `json:"calling,omitempty"`
	Polled  bool `json:"polled,omitempty"`
	Limit   int  `json:"limit"`
}

// unfinishedReply is one replica's part of the unfinished jobs.
type unfinishedReply struct {
	APIs []desk.APIState      `json:"apis"`
	Jobs []desk.UnfinishedJob `json:"unfinished"`
	// Reached is the time back to which the list is complete, if older jobs were not read.
	Reached time.Time `json:"reached,omitzero"`
	Err     string    `json:"error,omitempty"`
}

// JobPlace returns the place of an unfinished job in a list.
func JobPlace(j *desk.UnfinishedJob) jobindex.Place {
	return jobindex.Place{At: j.At.UnixNano(), Stream: j.Stream, Seq: j.Seq}
}

// Bounds of a list of jobs.
const (
	unfinishedTimeout = 4 * time.Second  // bounds how long an owner reads headers; it is shorter than the asking process waits
	listTimeout       = 10 * time.Second // bounds how long a replica reads its index
	mostHeaders       = 5000             // the most headers of waiting jobs that are read for one page, in each partition
)

// unfinishedWaits waits as long for each further answer as for the first one, because one owner may answer at once
// while another reads headers until unfinishedTimeout.
var unfinishedWaits = answerWaits{firstAnswer, firstAnswer}

// oneAnswers makes only one of the replicas answer a question to the endpoint.
var oneAnswers = micro.WithEndpointQueueGroup("index")

// unfinished answers with the unfinished jobs of the queues that this replica owns.
func (o operator) unfinished(req micro.Request) {
	q, err := readUnfinished(req.Data())
	if err != nil {
		respondError(req, err)
		return
	}
	o.aside(req, o.listing, busyListing, unfinishedTimeout, o.contained(func(ctx context.Context) (any, error) {
		reply := unfinishedReply{APIs: []desk.APIState{}, Jobs: []desk.UnfinishedJob{}}
		for _, api := range o.Dispatcher.Desk.APIs() {
			if q.API != "" && q.API != api {
				continue
			}
			state, err := o.Dispatcher.Desk.State(api)
			if err != nil {
				continue // the api was removed meanwhile
			}
			reply.APIs = append(reply.APIs, state)
			if state.Jobs == 0 || q.Status != (deadletter.StatusRange{}) {
				continue // an unfinished job has no status
			}
			found, err := o.Dispatcher.Desk.Unfinished(ctx, api, q.wanted())
			if err != nil {
				reply.Err = err.Error() // some partitions failed; the jobs of the others were found
			}
			reply.Jobs = append(reply.Jobs, found.Jobs...)
			reply = reply.newest(q.Limit + 1) // after each api, so that memory does not grow with the number of apis
			if found.Reached.After(reply.Reached) {
				reply.Reached = found.Reached
			}
		}
		return reply.fit(o.most), nil
	}))
}

// readUnfinished reads a question, and bounds the number of jobs that it asks for.
func readUnfinished(data []byte) (q UnfinishedJobs, err error) {
	if err := json.Unmarshal(data, &q); err != nil {
		return q, fmt.Errorf("the question cannot be read: %w", err)
	}
	q.Limit = min(max(q.Limit, 1), desk.MaxInspected)
	return q, nil
}

const busyListing = "too many questions about jobs and spending are being answered at once: try again"

// wanted returns the question in the form for the desk of one api. It asks for one job more than a page has: if that job
// exists, there is another page.
func (q *UnfinishedJobs) wanted() desk.UnfinishedWanted {
	wanted := desk.UnfinishedWanted{
		Waiting: q.Waiting, Calling: q.Calling, Polled: q.Polled, Key: q.Key, Part: q.Part, Since: q.Since,
		Limit: q.Limit + 1, Most: mostHeaders,
	}
	if !q.Until.IsZero() {
		wanted.UpTo = q.Until.Add(-time.Nanosecond)
	}
	if q.After != (jobindex.Place{}) {
		if at := time.Unix(0, q.After.At); wanted.UpTo.IsZero() || at.Before(wanted.UpTo) {
			wanted.UpTo = at
		}
		wanted.Behind = func(j *desk.UnfinishedJob) bool { return JobPlace(j).Compare(q.After) > 0 }
	}
	return wanted
}

// newest sorts the jobs, the newest first, and keeps only the first ones. jobs is how many.
func (r unfinishedReply) newest(jobs int) unfinishedReply {
	slices.SortFunc(r.Jobs, func(a, b desk.UnfinishedJob) int { return JobPlace(&a).Compare(JobPlace(&b)) })
	if len(r.Jobs) > jobs {
		clear(r.Jobs[jobs:])
		r.Jobs = r.Jobs[:jobs]
	}
	return r
}

// fit drops the older half of the jobs until the reply has at most the given number of bytes.
func (r unfinishedReply) fit(bytes int) unfinishedReply {
	for len(marshal(r)) > bytes && len(r.Jobs) > 1 {
		r.Jobs = r.Jobs[:len(r.Jobs)/2]
		if last := r.Jobs[len(r.Jobs)-1].At; last.After(r.Reached) {
			r.Reached = last
		}
	}
	return r
}

// Unfinished is an answer to UnfinishedJobs.
type Unfinished struct {
	Jobs []desk.UnfinishedJob // the newest first
	// Reached is the time back to which the list is complete, if older jobs were not read; otherwise it is zero.
	Reached time.Time
	Silent  []string // which jobs are missing, and why
}

// Unfinished returns the unfinished jobs of all replicas. It blocks for some seconds at most.
func (q *UnfinishedJobs) Unfinished(c *connect.Connection) (Unfinished, error) {
	g := gathering{api: q.API, owned: map[string]int{}, partitions: map[string]int{}}
	err := askFor(c, jobsSubject, marshal(q), unfinishedWaits, g.take)
	return g.found(), err
}

// gathering merges the answers of the replicas.
type gathering struct {
	api               string // the api asked for; "": all apis
	all               Unfinished
	owned, partitions map[string]int // by api
}

// take adds an answer. It reports whether the owners of all partitions have answered.
func (g *gathering) take(data []byte, wrong *operatorError) (enough bool) {
	var r unfinishedReply
	switch {
	case wrong != nil:
		g.all.Silent = append(g.all.Silent, wrong.text)
		return false
	case json.Unmarshal(data, &r) != nil:
		g.all.Silent = append(g.all.Silent, errUnreadable.Error())
		return false
	}
	if r.Err != "" {
		g.all.Silent = append(g.all.Silent, r.Err)
	}
	g.all.Jobs = append(g.all.Jobs, r.Jobs...)
	if r.Reached.After(g.all.Reached) {
		g.all.Reached = r.Reached
	}
	for i := range r.APIs {
		api := &r.APIs[i]
		g.owned[api.API], g.partitions[api.API] = g.owned[api.API]+api.Owned, api.Partitions
	}
	for api := range g.partitions {
		if !g.complete(api) {
			return false
		}
	}
	return g.api == "" || len(g.partitions) > 0 // the replicas that have answered may not know the api yet
}

func (g *gathering) complete(api string) bool { return g.owned[api] >= g.partitions[api] }

// found returns the jobs, the newest first, and says which jobs are missing.
func (g *gathering) found() Unfinished {
	for api, n := range g.partitions {
		if !g.complete(api) {
			g.all.Silent = append(g.all.Silent, fmt.Sprintf("no replica answered for %d of the %d partitions of %s", n-g.owned[api], n, api))
		}
	}
	slices.SortFunc(g.all.Jobs, func(a, b desk.UnfinishedJob) int { return JobPlace(&a).Compare(JobPlace(&b)) })
	slices.SortFunc(g.all.Silent, strings.Compare)
	return g.all
}

// ended answers with jobs that have ended.
func (o operator) ended(req micro.Request) {
	var q jobindex.Question
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	q.Limit = min(max(q.Limit, 1), desk.MaxInspected)
	o.aside(req, o.listing, busyListing, listTimeout, o.contained(func(ctx context.Context) (any, error) {
		page, err := o.Index.List(ctx, q)
		for err == nil && len(marshal(page)) > o.most && len(page.Jobs) > 1 {
			page.Jobs, page.More = page.Jobs[:len(page.Jobs)/2], true
		}
		return page, err
	}))
}

// EndedJobs returns the ended jobs that q asks for, from the index of one replica.
func EndedJobs(ctx context.Context, c *connect.Connection, q *jobindex.Question) (page jobindex.Page, err error) {
	err = askIndex(ctx, c, endedSubject, q, &page)
	return page, err
}

// tracesOf is the question for everything that is recorded of a job id. If it has waits, it asks instead how many calls
// began during each wait. If it has ends, it asks whether each end was posted.
type tracesOf struct {
	Job   string          `json:"job"`
	Waits []jobindex.Wait `json:"waits,omitempty"`
	Ends  []EndPlace      `json:"ends,omitempty"`
}

// aheadReply is the answer to a question with waits. It has a number for each wait.
type aheadReply struct {
	Ahead []int `json:"ahead"`
}

// mostWaits is the most waits, and the most ends, that one question may have.
const mostWaits = 100

// traces answers with everything that is recorded of a job id, with an aheadReply, or with a postingsReply. It prepares
// a postingsReply at once and without a slot for lists, because it only reads memory for it.
func (o operator) traces(req micro.Request) {
	var q tracesOf
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	if len(q.Waits) == 0 && len(q.Ends) > 0 {
		reply, err := o.contained(func(context.Context) (any, error) { return o.postings(q.Ends), nil })(o.ctx)
		if err != nil {
			respondError(req, err)
			return
		}
		_ = req.Respond(marshal(reply)) // on an error the asking process has gone
		return
	}
	o.aside(req, o.listing, busyListing, listTimeout, o.contained(func(ctx context.Context) (any, error) {
		if len(q.Waits) > 0 {
			return aheadReply{o.Index.Ahead(q.Waits[:min(len(q.Waits), mostWaits)])}, nil
		}
		return o.Index.Traces(ctx, q.Job), nil
	}))
}

func (o operator) postings(ends []EndPlace) (reply postingsReply) {
	for _, end := range ends[:min(len(ends), mostWaits)] {
		reply.Postings = append(reply.Postings, o.Posting(end))
	}
	return reply
}

// AheadOf returns, for each of a job's waits, how many calls of other jobs of the same key began during that wait. The
// number comes from the index of one replica. It is jobindex.NotKnown if the index does not know the wait.
func AheadOf(ctx context.Context, c *connect.Connection, waits []jobindex.Wait) []int {
	all := make([]int, 0, len(waits))
	for some := range slices.Chunk(waits, mostWaits) {
		var reply aheadReply
		if err := askIndex(ctx, c, tracesSubject, tracesOf{Job: some[0].Job, Waits: some}, &reply); err != nil || len(reply.Ahead) != len(some) {
			reply.Ahead = slices.Repeat([]int{jobindex.NotKnown}, len(some))
		}
		all = append(all, reply.Ahead...)
	}
	return all
}

// TracesOf returns everything that is recorded of a job id, from the index of one replica.
func TracesOf(ctx context.Context, c *connect.Connection, job string) (t jobindex.Traces, err error) {
	err = askIndex(ctx, c, tracesSubject, tracesOf{Job: job}, &t)
	return t, err
}

// askIndex sends a question to one of the replicas and decodes its answer. It blocks for 11 seconds at most.
func askIndex(ctx context.Context, c *connect.Connection, subject string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout+time.Second)
	defer cancel()
	msg, err := c.Conn.RequestWithContext(ctx, subject, marshal(question))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return cli.Unreachable(fmt.Errorf("%w at %s: start `weir serve` with the role dispatch, or set WEIR_NATS_URL to the server it uses", errNobody, c.At))
	case errors.Is(err, context.DeadlineExceeded):
		return cli.Unreachable(fmt.Errorf("%w within %s at %s: is it stopped, or its machine overloaded?", errSilent, listTimeout, c.At))
	case err != nil:
		return c.Explain(err)
	case msg.Header.Get(micro.ErrorCodeHeader) != "":
		return &operatorError{msg.Header.Get(micro.ErrorCodeHeader), msg.Header.Get(micro.ErrorHeader)}
	case json.Unmarshal(msg.Data, answer) != nil:
		return errUnreadable
	}
	return nil
}

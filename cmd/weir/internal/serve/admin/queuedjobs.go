package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher/desk"
	"weir/ingest"

	"github.com/nats-io/nats.go/micro"
)

// JobInQueue names a job to look for in the queues of an api.
type JobInQueue struct {
	Job string `json:"job"`
	Key string `json:"key,omitempty"` // "": under any key
}

// jobsReply is one replica's answer about jobs in its queues.
type jobsReply[J any] struct {
	desk.APIState
	Jobs []J    `json:"found"`
	Err  string `json:"error,omitempty"`
}

// findWaits is long, because an owner may have to read its queue before it answers, for example after a takeover.
var findWaits = answerWaits{time.Minute, 5 * time.Second}

// Find looks for the unfinished jobs of an api that have an id. It blocks until all owners have answered, for about a
// minute at most. If an owner did not answer, Find returns the jobs that the others found, and an error.
func Find(c *connect.Connection, api string, q JobInQueue) (found []desk.QueuedJob, err error) {
	return findWithin(c, api, q, findWaits)
}

// FindSoon is Find for callers that cannot wait until owners have read long queues. It blocks for a few seconds at
// most.
func FindSoon(c *connect.Connection, api string, q JobInQueue) (found []desk.QueuedJob, err error) {
	return findWithin(c, api, q, answerWaits{firstAnswer, firstAnswer})
}

func findWithin(c *connect.Connection, api string, q JobInQueue, waits answerWaits) ([]desk.QueuedJob, error) {
	found, missing, err := askJobs[desk.QueuedJob](c, findSubject, api, q, waits)
	if err == nil && missing != nil {
		err = cli.Unreachable(missing)
	}
	return found, err
}

// askJobs asks every replica about jobs of an api, until the owners of all its partitions have answered. missing is an
// error if the owners of some partitions did not answer.
func askJobs[J any](c *connect.Connection, subject ingest.Subjects, api string, question any, waits answerWaits) (found []J, missing, err error) {
	q := ownersQuestion{subject: subject, api: api, body: question, waits: waits}
	heard, err := askOwners(c, q, func(a *jobsReply[J]) (state desk.APIState, failed error) {
		found = append(found, a.Jobs...)
		if a.Err != "" {
			failed = errors.New(a.Err)
		}
		return a.APIState, failed
	})
	if heard.owned < heard.partitions {
		missing = fmt.Errorf("no replica answered for %d of the %d partitions of %s", heard.partitions-heard.owned, heard.partitions, api)
	}
	return found, missing, cmp.Or(err, heard.failed)
}

// find answers where a job is in the queues of this replica.
func (o operator) find(req micro.Request) {
	var q JobInQueue
	answerJobs(o, req, findSubject, &q, func(ctx context.Context, api string) ([]desk.QueuedJob, error) {
		return o.Dispatcher.Desk.FindQueued(ctx, desk.Cancellation{API: api, Key: q.Key, Job: q.Job})
	})
}

// cancel ends a job, or only reports which job it would end.
func (o operator) cancel(req micro.Request) {
	var q Cancellation
	answerJobs(o, req, cancelSubject, &q, func(ctx context.Context, api string) ([]desk.CancelAnswer, error) {
		act := o.Dispatcher.Desk.Cancel
		if q.Look {
			act = o.Dispatcher.Desk.Find
		}
		return act(ctx, desk.Cancellation{API: api, Key: q.Key, Job: q.Job, Why: q.Why})
	})
}

// answerJobs reads a question about jobs of an api and answers with the jobs that look returns. look may block for
// long, because a long queue takes a while to read after a takeover.
func answerJobs[J any](o operator, req micro.Request, subject ingest.Subjects, question any, look func(ctx context.Context, api string) ([]J, error)) {
	if err := json.Unmarshal(req.Data(), question); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	o.aside(req, o.searching, "too many jobs are being looked for at once: try again", cancelTimeout, func(ctx context.Context) (any, error) {
		api := apiAsked(subject, req.Subject())
		state, err := o.Dispatcher.Desk.State(api)
		if err != nil {
			return nil, err
		}
		reply := jobsReply[J]{APIState: state}
		if reply.Jobs, err = look(ctx, api); err != nil {
			reply.Err = err.Error()
		}
		return reply, nil
	})
}

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/dispatcher"

	"github.com/nats-io/nats.go/micro"
)

// JobInQueue names a job that is looked for in the queues of an api.
type JobInQueue struct {
	Job string `json:"job"`
	Key string `json:"key,omitempty"` // "": under any key, for which all that waits is read
}

// findReply is one replica's answer.
type findReply struct {
	dispatcher.APIState
	Jobs []dispatcher.QueuedJob `json:"found"`
	Err  string                 `json:"error,omitempty"`
}

// find looks for a job, for whoever may look. It answers from a goroutine of its own, as cancel does.
func (o operator) find(req micro.Request) {
	var q JobInQueue
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	api := strings.TrimPrefix(req.Subject(), findSubject)
	o.searchFor(req, func(ctx context.Context) {
		state, err := o.Dispatcher.State(api)
		if err != nil {
			respondError(req, err)
			return
		}
		reply := findReply{APIState: state}
		if reply.Jobs, err = o.Dispatcher.FindQueued(ctx, dispatcher.Cancellation{API: api, Key: q.Key, Job: q.Job}); err != nil {
			reply.Err = err.Error()
		}
		_ = req.Respond(marshal(reply)) // whoever asked has gone: nothing to do
	})
}

// searchFor runs a search in a goroutine of its own, or refuses it where too many run.
func (o operator) searchFor(req micro.Request, search func(ctx context.Context)) {
	select {
	case o.searching <- struct{}{}:
	default:
		respondError(req, errors.New("too many jobs are being looked for at once: try again"))
		return
	}
	o.searches.Go(func() {
		defer func() { <-o.searching }()
		ctx, cancel := context.WithTimeout(o.ctx, cancelTimeout)
		defer cancel()
		search(ctx)
	})
}

// findWaits are for owners that read their queues first, one sooner than another.
var findWaits = answerWaits{time.Minute, 5 * time.Second}

// Find looks for the unfinished jobs of an api with an id. The owners read the headers of all that waits, or of the key's jobs. It
// blocks until all of them have answered, for a minute or so at most. It fails also beside what it found, where somebody did not answer.
func Find(c *connect.Connection, api string, q JobInQueue) (found []dispatcher.QueuedJob, err error) {
	return findWithin(c, api, q, findWaits)
}

// FindSoon is Find for who cannot wait for long queues to be read: it blocks for a few seconds at most.
func FindSoon(c *connect.Connection, api string, q JobInQueue) (found []dispatcher.QueuedJob, err error) {
	return findWithin(c, api, q, answerWaits{firstAnswer, firstAnswer})
}

func findWithin(c *connect.Connection, api string, q JobInQueue, waits answerWaits) (found []dispatcher.QueuedJob, err error) {
	owned, all, failed := 0, 1, error(nil)
	err = askFor(c, findSubject+api, marshal(q), waits, func(data []byte, wrong *operatorError) bool {
		var a findReply
		switch {
		case wrong != nil && wrong.code == codeNoAPI:
			return false
		case wrong != nil:
			failed = wrong
			return false
		case json.Unmarshal(data, &a) != nil:
			failed = errors.New("a dispatcher's answer cannot be read: is it another version?")
			return false
		case a.Err != "":
			failed = errors.New(a.Err)
		}
		found = append(found, a.Jobs...)
		owned, all = owned+a.Owned, a.Partitions
		return owned >= all
	})
	if err == nil {
		err = failed
	}
	if err == nil && owned < all {
		err = cli.Unreachable(fmt.Errorf("nobody answered for %d of the %d partitions of %s", all-owned, all, api))
	}
	return found, err
}

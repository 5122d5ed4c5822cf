package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/bucket/lease"
	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher/inquiry"

	"github.com/nats-io/nats.go/micro"
)

// The owner of a job's partition asks the api about the job of a letter, because the owner has the api's secrets,
// limits and pace. A command only names the letter and receives the outcome.

// reconcileQuestion names a letter.
type reconcileQuestion struct {
	Seq uint64 `json:"seq"`
}

// reconcileWaits is long, because the owner asks the api before it answers. The other replicas answer at once that they
// are not the owner.
var reconcileWaits = answerWaits{2 * time.Minute, 2 * time.Minute}

// ErrHeldByOther reports that another process is redriving or purging letters.
var ErrHeldByOther = errors.New("another redrive or purge of dead letters is running")

// Reconcile makes the owner of a letter's partition ask the api about the letter's job. It blocks until the api has
// answered, for two minutes at most.
func Reconcile(c *connect.Connection, api string, seq uint64) (inquiry.Reconciled, error) {
	var out inquiry.Reconciled
	failed := cli.Unreachable(fmt.Errorf("no replica owns the partition of letter %d of %s yet: try again in a few seconds", seq, api))
	err := askFor(c, reconcileSubject.Of(api), marshal(reconcileQuestion{seq}), reconcileWaits, func(data []byte, wrong *operatorError) bool {
		switch {
		case wrong != nil && (wrong.code == codeNoAPI || wrong.code == codeNotOur):
			return false
		case wrong != nil && wrong.code == codeHeld:
			failed = cli.Refused(fmt.Errorf("%w: %s", ErrHeldByOther, wrong.text))
		case wrong != nil:
			failed = wrong
		default:
			failed = json.Unmarshal(data, &out)
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return out, err
}

// reconcile asks an api about a letter's job.
func (o operator) reconcile(req micro.Request) {
	api := apiAsked(reconcileSubject, req.Subject())
	var q reconcileQuestion
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	o.aside(req, o.inquiring, "too many letters are being asked about at once: try again", reconcileTimeout, func(ctx context.Context) (any, error) {
		return o.Dispatcher.Reconcile(ctx, api, q.Seq)
	})
}

// heldBy reports whether err says that another process holds the right to end letters.
func heldBy(err error) bool {
	var held *lease.HeldError
	return errors.As(err, &held)
}

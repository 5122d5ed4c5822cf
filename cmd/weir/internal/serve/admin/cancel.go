package admin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher/desk"
	"weir/dispatcher/schedule"
)

// Cancellation is an operator's request to the replicas to cancel a job.
type Cancellation struct {
	Job string `json:"job"`
	Key string `json:"key,omitempty"`
	Why string `json:"why,omitempty"`
	// Look makes the owner only report what it would cancel.
	Look bool `json:"look,omitempty"`
}

// Cancel ends a waiting job, and blocks until the owner of the job's key has ended it. Cancel looks for the job first,
// and fails if it finds the id under several keys.
func Cancel(c *connect.Connection, api string, q Cancellation) ([]desk.CancelAnswer, error) {
	q.Look = true
	found, err := askCancel(c, api, q)
	if err != nil {
		return nil, err
	}
	keys := []string{}
	for _, f := range found {
		if !slices.Contains(keys, f.Key) {
			keys = append(keys, f.Key)
		}
	}
	switch len(keys) {
	case 0:
		return nil, cli.NotFound(fmt.Errorf("no unfinished job of %s has the id %s", api, cli.Visible(q.Job)))
	case 1:
	default:
		slices.Sort(keys)
		return nil, cli.Refused(fmt.Errorf("the id %s stands under %d keys of %s: name one with --key (%s)", cli.Visible(q.Job), len(keys), api,
			cli.Visible(strings.Join(keys[:min(len(keys), 10)], ", "))))
	}
	q.Key, q.Look = keys[0], false
	return askCancel(c, api, q)
}

// askCancel asks the owners. It fails if it finds no job and the owners of some partitions did not answer, because the
// job may be in one of these partitions.
func askCancel(c *connect.Connection, api string, q Cancellation) ([]desk.CancelAnswer, error) {
	found, missing, err := askJobs[desk.CancelAnswer](c, cancelSubject, api, q, cancelWaits)
	if err == nil && missing != nil && len(found) == 0 {
		err = cli.Unreachable(fmt.Errorf("%w: try again in some seconds", missing))
	}
	return found, err
}

// Cancelled returns an error that says why a job was not cancelled, nil if it was cancelled.
func Cancelled(api, job string, answers []desk.CancelAnswer) error {
	late, gone := "", 0
	for _, a := range answers {
		name := fmt.Sprintf("%s of %s/%s", cli.Visible(job), api, cli.Visible(a.Key))
		switch a.Verdict {
		case schedule.CancelTaken:
		case schedule.CancelCalling:
			late = name + " is being called: too late"
		case schedule.CancelReading:
			late = name + " is in a queue that is just being read: try again in some seconds"
		default:
			gone++
		}
	}
	switch {
	case late != "":
		return cli.Refused(errors.New(late))
	case gone == len(answers):
		return cli.NotFound(fmt.Errorf("%s of %s has ended meanwhile", cli.Visible(job), api))
	}
	return nil
}

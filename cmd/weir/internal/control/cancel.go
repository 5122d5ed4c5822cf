package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/dispatcher"
	"weir/dispatcher/schedule"
)

// Cancellation is what an operator asks the replicas to cancel.
type Cancellation struct {
	Job string `json:"job"`
	Key string `json:"key,omitempty"`
	Why string `json:"why,omitempty"`
	// Look only says what would be cancelled.
	Look bool `json:"look,omitempty"`
}

// cancelReply is one replica's answer.
type cancelReply struct {
	dispatcher.APIState
	Jobs []dispatcher.CancelAnswer `json:"found"`
	Err  string                    `json:"error,omitempty"`
}

// Cancel ends a job that waits, and blocks until the owner of its key has. It looks first: an id that stands under several keys is nobody's in particular.
func Cancel(c *connect.Connection, api string, q Cancellation) ([]dispatcher.CancelAnswer, error) {
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

// askCancel asks every replica, until the owners of all partitions have answered.
func askCancel(c *connect.Connection, api string, q Cancellation) (found []dispatcher.CancelAnswer, err error) {
	owned, all, failed := 0, 1, error(nil)
	err = askFor(c, cancelSubject+api, marshal(q), cancelWaits, func(data []byte, wrong *operatorError) bool {
		var a cancelReply
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
	if err == nil && owned < all && len(found) == 0 {
		err = cli.Unreachable(fmt.Errorf("nobody answered for %d of the %d partitions of %s: try again in some seconds", all-owned, all, api))
	}
	return found, err
}

// Cancelled says why a job was not cancelled, nil where it was.
func Cancelled(api, job string, answers []dispatcher.CancelAnswer) error {
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

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"

	"github.com/nats-io/nats.go/micro"
)

// Notified is the result of a test message to one receiver: a destination of events, or a callback.
type Notified struct {
	Destination string `json:"destination"`     // a name, or API/callback
	Error       string `json:"error,omitempty"` // why the receiver has not accepted the message, "" if it has
}

// notifyQuestion names the receiver to test.
type notifyQuestion struct {
	Name string `json:"name,omitempty"` // "" for all
	Who  string `json:"who"`
}

// notifyTimeout bounds a test of all receivers. Each post takes 15 seconds at most, and several run at once.
const notifyTimeout = 5 * time.Minute

var notifyWaits = answerWaits{notifyTimeout + 10*time.Second, 0}

// Notify makes one replica post a test message to the destination or callback of that name, or to all if name is empty.
// The replica posts, because a command may lack the secrets and may be unable to reach the receiver.
func Notify(c *connect.Connection, name, who string) ([]Notified, error) {
	var all []Notified
	var failed error
	err := askFor(c, notifySubject, marshal(notifyQuestion{name, who}), notifyWaits, func(data []byte, wrong *operatorError) bool {
		if failed = json.Unmarshal(data, &all); wrong != nil {
			failed = wrong
		}
		return true
	})
	switch {
	case err != nil:
		return nil, err
	case failed != nil:
		return nil, failed
	case len(all) == 0 && name != "":
		return nil, cli.NotFound(fmt.Errorf("%s is neither a destination under notifications nor the callback of an api: write NAME or API/callback",
			cli.Visible(name)))
	case len(all) == 0:
		return nil, cli.NotFound(errors.New("the configuration names no destination under notifications, and no api has a callback"))
	}
	return all, nil
}

// notify posts a test message to the receivers that a question names.
func (o operator) notify(req micro.Request) {
	var q notifyQuestion
	if err := json.Unmarshal(req.Data(), &q); err != nil {
		respondError(req, fmt.Errorf("the question cannot be read: %w", err))
		return
	}
	o.aside(req, o.notifying, "another test of receivers is running", notifyTimeout, func(ctx context.Context) (any, error) {
		return o.Notify(ctx, q.Name, q.Who), nil
	})
}

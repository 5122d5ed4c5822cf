package admin

import (
	"errors"
	"fmt"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/nats/connect"
	"weir/dispatcher/desk"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// operatorError is an error that a replica sent as its answer.
type operatorError struct{ code, text string }

// Error implements error.
func (e *operatorError) Error() string { return e.text }

// errNobody reports that no dispatching weir is connected to the server.
var errNobody = errors.New("no dispatching weir answers")

// errSilent reports that a dispatching weir is connected and did not answer. It may still make calls.
var errSilent = errors.New("a dispatching weir did not answer")

// errUnreadable reports that a replica's answer has a form that this version cannot read.
var errUnreadable = errors.New("a dispatcher's answer cannot be read: is it another version?")

// ask sends a question to every replica. It passes each answer or error to take, until take returns true or no more
// answers come. It fails with errNobody if no replica is connected, and with errSilent if replicas are connected and
// none answers within firstAnswer.
func ask(c *connect.Connection, subject string, limit int, take func(data []byte, err *operatorError) (enough bool)) error {
	return askFor(c, subject, marshal(question{Limit: limit}), answerWaits{firstAnswer, nextAnswer}, take)
}

func askFor(c *connect.Connection, subject string, question []byte, waits answerWaits, take func(data []byte, err *operatorError) (enough bool)) error {
	inbox := c.Conn.NewRespInbox()
	sub, err := c.Conn.SubscribeSync(inbox)
	if err != nil {
		return c.Explain(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := c.Conn.PublishRequest(subject, inbox, question); err != nil {
		return c.Explain(err)
	}
	heard := false
	for wait := waits.first; ; wait = waits.next {
		msg, err := sub.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrTimeout) && !heard:
			return cli.Unreachable(fmt.Errorf("%w within %s at %s: is it stopped, or its machine overloaded?", errSilent, waits.first, c.At))
		case errors.Is(err, nats.ErrNoResponders):
			return cli.Unreachable(fmt.Errorf("%w at %s: start `weir serve` with the role dispatch, or set WEIR_NATS_URL to the server it uses", errNobody, c.At))
		case errors.Is(err, nats.ErrTimeout):
			return nil
		case err != nil:
			return c.Explain(err)
		}
		heard = true
		var wrong *operatorError
		if code := msg.Header.Get(micro.ErrorCodeHeader); code != "" {
			wrong = &operatorError{code, msg.Header.Get(micro.ErrorHeader)}
		}
		if take(msg.Data, wrong) {
			return nil
		}
	}
}

// CheckLimit returns an error if limit is not within 1 to desk.MaxInspected.
func CheckLimit(limit int) error {
	if limit < 1 || limit > desk.MaxInspected {
		return cli.Usage(errors.New("--limit is 1 to " + strconv.Itoa(desk.MaxInspected)))
	}
	return nil
}

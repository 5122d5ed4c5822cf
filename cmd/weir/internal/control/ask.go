package control

import (
	"errors"
	"fmt"
	"strconv"

	"weir/cmd/weir/internal/cli"
	"weir/cmd/weir/internal/connect"
	"weir/dispatcher"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
)

// operatorError is what a replica answered instead of data.
type operatorError struct{ code, text string }

// Error implements error.
func (e *operatorError) Error() string { return e.text }

// errNobody says that no dispatching weir is connected to the server.
var errNobody = errors.New("no dispatching weir answers")

// errSilent says that one is connected, and says nothing: it may call all the same.
var errSilent = errors.New("a dispatching weir did not answer")

// errUnreadable says that a replica's answer is none that this version knows.
var errUnreadable = errors.New("a dispatcher's answer cannot be read: is it another version?")

// ask puts a question to every replica and gives each answer, or the error in its place, to take, until take is
// satisfied or no more come. It fails with errNobody when nobody is there to answer, and with errSilent when nobody has.
func ask(c *connect.Connection, subject string, limit int, take func(data []byte, err *operatorError) (enough bool)) error {
	return askFor(c, subject, marshal(inquiry{Limit: limit}), answerWaits{firstAnswer, nextAnswer}, take)
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
	for wait := waits.first; ; wait = waits.next {
		msg, err := sub.NextMsg(wait)
		switch {
		case errors.Is(err, nats.ErrTimeout) && wait == waits.first:
			return cli.Unreachable(fmt.Errorf("%w within %s at %s: is it stopped, or its machine overloaded?", errSilent, waits.first, c.At))
		case errors.Is(err, nats.ErrNoResponders):
			return cli.Unreachable(fmt.Errorf("%w at %s: start `weir serve` with the role dispatch, or set WEIR_NATS_URL to the server it uses", errNobody, c.At))
		case errors.Is(err, nats.ErrTimeout):
			return nil
		case err != nil:
			return c.Explain(err)
		}
		var wrong *operatorError
		if code := msg.Header.Get(micro.ErrorCodeHeader); code != "" {
			wrong = &operatorError{code, msg.Header.Get(micro.ErrorHeader)}
		}
		if take(msg.Data, wrong) {
			return nil
		}
	}
}

// CheckLimit refuses a number of lines that nobody can be asked for.
func CheckLimit(limit int) error {
	if limit < 1 || limit > dispatcher.MaxInspected {
		return cli.Usage(errors.New("--limit is 1 to " + strconv.Itoa(dispatcher.MaxInspected)))
	}
	return nil
}

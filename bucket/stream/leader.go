package stream

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LeaderMessage is a message as its stream's leader has it.
type LeaderMessage struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
	Headers []byte    `json:"hdrs"` // as they stand on the wire
}

// AskLeader asks a stream's leader for a message and returns nil when there is none. JetStream's direct reads may be
// answered by a replica that lags: nothing that must not be missed may be looked up by them. The request is that of
// $JS.API.STREAM.MSG.GET. It blocks for ten seconds at most.
func AskLeader(ctx context.Context, nc *nats.Conn, stream, request string) (*LeaderMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, AnswerWait)
	defer cancel()
	msg, err := nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, []byte(request))
	if err != nil {
		return nil, fmt.Errorf("ask the leader of %s: %w", stream, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *LeaderMessage      `json:"message"`
	}
	switch err := json.Unmarshal(msg.Data, &answer); {
	case err != nil, answer.Error == nil && answer.Message == nil:
		return nil, fmt.Errorf("ask the leader of %s: unreadable answer", stream)
	case answer.Error != nil && answer.Error.ErrorCode == CodeNoMessage:
		return nil, nil //nolint:nilnil // none is no error
	case answer.Error != nil:
		return nil, fmt.Errorf("ask the leader of %s: %w", stream, answer.Error)
	}
	return answer.Message, nil
}

package bench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// load is what a producer publishes.
type load struct {
	subject string // before the key
	jobs    int
	keys    int
	body    int
	path    bool // whether the job asks for its key as a path
}

// publish stores jobs as a JetStream producer does that goes on before it is answered, and returns when every job is acknowledged.
func (l load) publish(ctx context.Context, js jetstream.JetStream) error {
	body := bytes.Repeat([]byte("x"), l.body)
	acks := make([]jetstream.PubAckFuture, 0, l.jobs)
	for i := range l.jobs {
		key := "key-" + strconv.Itoa(i%l.keys)
		m := &nats.Msg{Subject: l.subject + "." + key, Data: body}
		if l.path {
			m.Header = nats.Header{"Weir-Path": {"/" + key}}
		}
		ack, err := js.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute))
		if err != nil {
			return fmt.Errorf("publish job %d: %w", i+1, err)
		}
		acks = append(acks, ack)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return fmt.Errorf("not all jobs were acknowledged: %w", context.Cause(ctx))
	}
	for i, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("job %d was not taken: %w", i+1, err)
		}
	}
	return nil
}

package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ackWithin is how long Follow waits for the server to confirm that a result was handled, or was not.
const ackWithin = 5 * time.Second

// Results says which results Follow reads.
type Results struct {
	// Name is the name of the durable consumer. A reader with the same name resumes where the last one stopped.
	// Required; letters, digits, - and _.
	Name string
	// API and Key choose the results. If both are empty, Follow reads all. A Key needs an API.
	API, Key string
}

// Follow passes each result to handle, one at a time, in the order of the stream. It returns if handle fails or ctx
// ends. It continues after a reconnect. After a restart it continues with the first result for which handle has not
// returned nil, so handle may get a result twice and must recognise it by its Job. If handle takes longer than 30
// seconds, the result is delivered again. After handle has returned, Follow waits for up to 5 seconds until the server
// knows the outcome, even if ctx has ended.
//
// Readers with the same name share the results. Follow does not read letters: read WEIR_DEAD, or the events.
func (c *Client) Follow(ctx context.Context, r Results, handle func(ctx context.Context, end End) error) error {
	subject := resultsSubject + ">"
	switch {
	case r.Name == "":
		return errors.New("follow results: the reader has no Name")
	case r.Key != "" && r.API == "":
		return errors.New("follow results: a Key needs an API")
	case r.Key != "":
		subject = resultsSubject + Token(r.API) + "." + Token(r.Key)
	case r.API != "":
		subject = resultsSubject + Token(r.API) + ".>"
	}
	js, err := jetstream.New(c.nc)
	if err != nil {
		return fmt.Errorf("follow results: %w", err)
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, resultsStream, jetstream.ConsumerConfig{
		Durable: r.Name, FilterSubject: subject, AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return fmt.Errorf("follow results as %s: %w", r.Name, err)
	}
	// Results buffered here would be redelivered too soon.
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1))
	if err != nil {
		return fmt.Errorf("follow results as %s: %w", r.Name, err)
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.giveBack(ctx, msg)
			}
			return context.Cause(ctx)
		case errors.Is(err, jetstream.ErrNoHeartbeat): // the connection was lost: Next asks again
			continue
		case err != nil:
			return fmt.Errorf("follow results as %s: %w", r.Name, err)
		}
		if end, ok := ParseEnd(msg.Headers(), msg.Data()); ok {
			if err := handle(ctx, end); err != nil {
				c.giveBack(ctx, msg)
				return err
			}
		}
		// Even if ctx has ended: else the result would come again, after later ones.
		acked, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackWithin)
		_ = msg.DoubleAck(acked) // redelivered if not acknowledged
		cancel()
		if ctx.Err() != nil { // Next would ask for a result that nothing reads
			return context.Cause(ctx)
		}
	}
}

// giveBack has the server deliver a result again, before any later one, to the next reader. giveBack waits until the
// server has noted that: a reader that begins earlier would get a later result first.
func (c *Client) giveBack(ctx context.Context, msg jetstream.Msg) {
	noted, cancel := context.WithTimeout(context.WithoutCancel(ctx), ackWithin)
	defer cancel()
	_, _ = c.nc.RequestWithContext(noted, msg.Reply(), []byte("-NAK")) // delivered again after 30 seconds if it fails
}

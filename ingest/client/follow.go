package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// ackWithin is how long Follow waits for the word that a result is done with.
const ackWithin = 5 * time.Second

// Results names a reader of results.
type Results struct {
	// Name is that of the reader's durable consumer: under the same name it goes on where it was. Required; letters, digits, - and _.
	Name string
	// API and Key choose the results; empty: all. A Key needs an API.
	API, Key string
}

// Follow gives each result to handle, in the order of their stream, one after another, and returns when handle returns an error, which is
// its own, or ctx ends. It goes on after a reconnect, and after a restart with what handle has not returned nil for: so handle may see a
// result twice, and must know it by its Job. A handle that takes longer than 30 seconds is given the same result again.
//
// Readers of one name share the results among them. Letters are not among them: read WEIR_DEAD, or the events.
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
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1)) // what lies here unread would be given again too soon
	if err != nil {
		return fmt.Errorf("follow results as %s: %w", r.Name, err)
	}
	defer messages.Stop()
	for {
		msg, err := messages.Next(jetstream.NextContext(ctx))
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, jetstream.ErrNoHeartbeat): // the connection was away: Messages asks again
			continue
		case err != nil:
			return fmt.Errorf("follow results as %s: %w", r.Name, err)
		}
		if end, ok := ParseEnd(msg.Headers(), msg.Data()); ok {
			if err := handle(ctx, end); err != nil {
				_ = msg.Nak() // it comes again at once to whoever reads on
				return err
			}
		}
		acked, cancel := context.WithTimeout(ctx, ackWithin)
		_ = msg.DoubleAck(acked) // what is not acknowledged comes again
		cancel()
	}
}

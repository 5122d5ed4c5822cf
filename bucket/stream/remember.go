package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

// MostIDs bounds the ids that are read from one stream.
const MostIDs = 1_000_000

// Remembered is a message that a stream has.
type Remembered struct {
	Subject string
	ID      string
	Seq     uint64
	At      time.Time
}

// rememberAhead is how many messages, without their bodies, NATS may push ahead of who reads ids.
const rememberAhead = 1024

// Remember reads the ids of what a stream stored since a time and still has. A stream that was restored from a snapshot has
// its messages and does not know their ids: a second message with one of them would be taken for a new one.
func Remember(ctx context.Context, js jetstream.JetStream, name string, since time.Time) ([]Remembered, error) {
	source, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	if source.CachedInfo().State.Msgs == 0 || source.CachedInfo().State.LastTime.Before(since) {
		return nil, nil
	}
	consumer, err := source.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since, HeadersOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	if info.NumPending+info.Delivered.Consumer == 0 {
		return nil, nil // deleted at the end
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(rememberAhead))
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	defer msgs.Stop()
	var found []Remembered
	for len(found) < MostIDs {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, nats.ErrTimeout) {
			continue // the ordered consumer sets itself up anew
		} else if err != nil {
			return nil, fmt.Errorf("ids of %s: %w", name, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("ids of %s: %w", name, err)
		}
		found = append(found, Remembered{msg.Subject(), msg.Headers().Get(ingest.HeaderMsgID), meta.Sequence.Stream, meta.Timestamp})
		if meta.NumPending == 0 {
			break
		}
	}
	return found, nil
}

// Remember makes the writer know the ids of what a stream stored since a time, where the stream does not: after it was
// restored. It must be called before Run.
func (w *Writer) Remember(ctx context.Context, js jetstream.JetStream, name string, since time.Time) error {
	found, err := Remember(ctx, js, name, since)
	if err != nil {
		return err
	}
	if w.known == nil {
		w.known = map[string]uint64{}
	}
	for _, m := range found {
		if m.ID != "" {
			w.known[m.ID] = m.Seq
		}
	}
	return nil
}

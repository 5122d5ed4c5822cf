package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

// MostIDs bounds the ids that are read from one stream.
const MostIDs = 1_000_000

// Remembered is a message that a stream holds.
type Remembered struct {
	Subject string
	ID      string
	Seq     uint64
	At      time.Time
}

var errMostIDs = errors.New("the maximum number of ids was read from the stream")

// Remember reads the ids of the messages that a stream stored since a time and still has, at most MostIDs. A stream
// that was restored from a snapshot has its messages but does not know their ids: it would accept a second message with
// the same id as a new one. Remember blocks until the ids are read, or ctx ends.
func Remember(ctx context.Context, js jetstream.JetStream, name string, since time.Time) ([]Remembered, error) {
	source, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	state := source.CachedInfo().State
	if state.Msgs == 0 || state.LastTime.Before(since) {
		return nil, nil
	}
	var found []Remembered
	from := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since, HeadersOnly: true}
	err = ReadUntil(ctx, Until{Conn: js.Conn(), Stream: source, From: from, Last: state.LastSeq}, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		found = append(found, Remembered{msg.Subject(), msg.Headers().Get(ingest.HeaderMsgID), meta.Sequence.Stream, meta.Timestamp})
		if len(found) == MostIDs {
			return errMostIDs
		}
		return nil
	})
	if err != nil && !errors.Is(err, errMostIDs) {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	return found, nil
}

// Remember adds the ids of the messages that a restored stream stored since a time to those that the writer knows,
// because the stream has forgotten them. It must be called before Run.
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

package stream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
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

// Remember reads the ids of the messages that n describes, the oldest first. If n.Most is 0, it is MostIDs. A stream
// that was restored from a snapshot has its messages but does not know their ids, so it would store a second message
// with the same id. If there are more messages than n.Most, Remember leaves out the oldest and logs that, unless log is
// nil. It blocks until the ids are read, or ctx ends.
func Remember(ctx context.Context, n Newest, log *slog.Logger) ([]Remembered, error) {
	n.Most, n.Bare = cmp.Or(n.Most, MostIDs), true
	var found []Remembered
	reach, err := n.Read(ctx, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
		found = append(found, Remembered{msg.Subject(), msg.Headers().Get(ingest.HeaderMsgID), meta.Sequence.Stream, meta.Timestamp})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", n.Stream, err)
	}
	if !reach.All && log != nil {
		log.Warn("a restored stream holds more messages than weir remembers ids of: "+
			"a message that comes again with the id of an older one is stored twice",
			"stream", n.Stream, "ids", reach.Read, "since", reach.From)
	}
	slices.Reverse(found)
	return found, nil
}

// Remember tells the writer the ids of the messages of a restored stream, which the stream has forgotten. It must be
// called before Run.
func (w *Writer) Remember(ctx context.Context, n Newest, log *slog.Logger) error {
	found, err := Remember(ctx, n, log)
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

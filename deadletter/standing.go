package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// mostDeleted bounds the list of deleted letters. A sequence takes about ten bytes on the wire.
const mostDeleted = 1_000_000

// Standing is the state of the stream of letters at one moment.
type Standing struct {
	Created     time.Time // of the stream; a different time means a different stream
	First, Last uint64    // sequences
	Letters     uint64
	// Deleted has the sequences between First and Last whose letters are gone, in order. It is nil if they were not
	// requested.
	Deleted []uint64
	Gone    int // the number of deleted letters
}

// Standing returns the state of the stream. If deleted is set, it also lists the deleted letters: check Listable first.
func (b *Browser) Standing(ctx context.Context, deleted bool) (Standing, error) {
	var how []jetstream.StreamInfoOpt
	if deleted {
		how = append(how, jetstream.WithDeletedDetails(true))
	}
	info, err := b.stream.Info(ctx, how...)
	if err != nil {
		return Standing{}, fmt.Errorf("dead letters: %w", err)
	}
	return Standing{
		Created: info.Created, First: info.State.FirstSeq, Last: info.State.LastSeq, Letters: info.State.Msgs, Deleted: info.State.Deleted, Gone: info.State.NumDeleted,
	}, nil
}

// Listable reports whether there are few enough deleted letters to list them.
func (s *Standing) Listable() bool { return s.Gone <= mostDeleted }

// After passes the letters after one sequence and up to another to take, oldest first and without bodies, until take
// fails.
func (b *Browser) After(ctx context.Context, after, last uint64, take func(Kept) error) error {
	return b.read(ctx, Filter{}, span{first: after + 1, last: last}, HeadersOnly, 0, take)
}

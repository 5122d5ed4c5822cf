package deadletter

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// mostDeleted bounds the deleted letters between others that are listed: some ten bytes each on the wire.
const mostDeleted = 1_000_000

// Standing is what the stream says of its letters at one moment.
type Standing struct {
	Created     time.Time // of the stream: another time is another stream
	First, Last uint64    // sequences
	Letters     uint64
	// Deleted are the sequences between First and Last whose letters are gone, in order; nil where they were not asked for, or are too many.
	Deleted []uint64
	Gone    int // how many they are
}

// Standing asks the stream. With deleted it lists which letters are gone between others, of at most a million.
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

// Listable reports whether which letters are gone can be listed.
func (s *Standing) Listable() bool { return s.Gone <= mostDeleted }

// After gives the letters behind one number and up to another to take, the oldest first and without their bodies, until take fails.
func (b *Browser) After(ctx context.Context, after, last uint64, take func(Kept) error) error {
	r, err := b.reader(ctx, Filter{}, func(c *jetstream.ConsumerConfig) {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, after+1
	})
	if err != nil {
		return err
	}
	defer r.close(ctx)
	return r.read(ctx, last, take)
}

package ledger

import (
	"context"
	"fmt"
	"time"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// Take receives a record, its sequence, and when the server stored it. c is nil if the record cannot be read.
type Take func(seq uint64, stored time.Time, c *Record) error

// RecordsBack calls take with the records before a sequence, the newest first, until take fails. stream.ErrEnough ends
// it without an error. It blocks until all are read, or ctx ends.
func RecordsBack(ctx context.Context, js jetstream.JetStream, before uint64, take Take) error {
	n := stream.Newest{JetStream: js, Stream: CallsStream, Before: before}
	if _, err := n.Read(ctx, take.message); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

// RecordsOn calls take with the records behind a sequence, first those that are there, and then those that come. It
// ends when take fails, the ledger can no longer be read, or ctx ends.
func RecordsOn(ctx context.Context, js jetstream.JetStream, after uint64, take Take) error {
	p := portion{stream: CallsStream, after: after}
	return p.follow(ctx, js, func(msg jetstream.Msg) error {
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		return take.message(msg, meta)
	})
}

func (t Take) message(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
	c, err := readRecord(msg, meta)
	if err != nil {
		c = nil
	}
	return t(meta.Sequence.Stream, meta.Timestamp, c)
}

package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// Extent is what the ledger reaches from and to, as its leader has it.
type Extent struct {
	Born        time.Time // a ledger that was made anew has other records under the same sequences
	First, Last uint64    // First is the oldest that is there, or would be
}

// ExtentOf asks for the ledger's extent.
func ExtentOf(ctx context.Context, js jetstream.JetStream) (Extent, error) {
	calls, err := js.Stream(ctx, CallsStream)
	if err != nil {
		return Extent{}, fmt.Errorf("ledger: %w", err)
	}
	info := calls.CachedInfo()
	return Extent{Born: info.Created, First: info.State.FirstSeq, Last: info.State.LastSeq}, nil
}

// ErrUnreadable is a record that is none: what its call took nobody knows.
var ErrUnreadable = errors.New("a record of the ledger cannot be read")

// ReadCharges gives the records of an api that stand behind one sequence of the ledger and not behind another, in order. It
// fails with ErrUnreadable at one that it cannot read.
func ReadCharges(ctx context.Context, js jetstream.JetStream, api string, after, last uint64, take func(c *Record, seq uint64)) error {
	newest, err := stream.LastOf(ctx, js.Conn(), CallsStream, CallsOf(api))
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if newest <= after || last <= after {
		return nil
	}
	calls, err := js.Stream(ctx, CallsStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	from := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{CallsOf(api)}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
	}
	err = stream.ReadUntil(ctx, stream.Until{Conn: js.Conn(), Stream: calls, From: from, Last: min(newest, last)},
		func(msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
			var c Record
			if err := json.Unmarshal(msg.Data(), &c); err != nil {
				return fmt.Errorf("%w: number %d: %w", ErrUnreadable, meta.Sequence.Stream, err)
			}
			take(&c, meta.Sequence.Stream)
			return nil
		})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

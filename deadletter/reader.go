package deadletter

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// read passes the letters in a part of the stream to take, oldest first, until take fails; stream.ErrEnough ends it
// without an error. The server applies only the filter's subject. At most ahead letters are on their way at once; 0
// means 1000.
func (b *Browser) read(ctx context.Context, f Filter, part span, parts Parts, ahead int, take func(Kept) error) error {
	if part.first > part.last {
		return nil
	}
	from := jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(1, part.first), HeadersOnly: parts == HeadersOnly,
	}
	if subject := f.filtered(); subject != "" {
		from.FilterSubjects = []string{subject}
	}
	var failed error
	err := stream.ReadUntil(ctx, stream.Until{
		Conn: b.js.Conn(), Stream: b.stream, From: from, Last: part.last, Clear: true, Ahead: ahead,
	}, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
		if k, ok := ReadKept(msg); ok {
			failed = take(k)
		}
		return failed
	})
	switch {
	case errors.Is(failed, stream.ErrEnough):
		return nil
	case failed != nil:
		return failed
	case err != nil:
		return fmt.Errorf("read the dead letters: %w", err)
	}
	return nil
}

// count returns about how many letters match the filter's subject from a place in the stream on. The replica that
// counts may lag.
func (b *Browser) count(ctx context.Context, f Filter, from func(*jetstream.ConsumerConfig)) (uint64, error) {
	cfg := jetstream.ConsumerConfig{Description: "weir: a count of dead letters", FilterSubject: f.filtered()}
	from(&cfg)
	n, err := stream.Count(ctx, b.stream, cfg)
	if err != nil {
		return 0, fmt.Errorf("count the dead letters: %w", err)
	}
	return n, nil
}

// countFrom returns about how many letters match the filter's subject from a sequence on.
func (b *Browser) countFrom(ctx context.Context, f Filter, seq uint64) (uint64, error) {
	return b.count(ctx, f, func(c *jetstream.ConsumerConfig) {
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, max(1, seq)
	})
}

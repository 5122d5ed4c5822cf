package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
)

// reader is one consumer of the letters' headers.
type reader struct {
	stream   jetstream.Stream
	consumer jetstream.Consumer
	nc       *nats.Conn
	subject  string
	next     uint64 // sequence
	pending  uint64 // letters not yet read, as the consumer's replica counted when it was made; the replica may lag
	batch    int    // letters of one request
}

func (b *Browser) reader(ctx context.Context, f Filter, from func(*jetstream.ConsumerConfig)) (*reader, error) {
	cfg := jetstream.ConsumerConfig{
		Description: "weir: a reader of the dead letters", FilterSubject: f.filtered(), AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: idleReader,
	}
	from(&cfg)
	consumer, err := b.stream.CreateConsumer(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("read the dead letters: %w", err)
	}
	return &reader{
		stream: b.stream, consumer: consumer, nc: b.js.Conn(), subject: f.subject(), next: max(1, cfg.OptStartSeq),
		pending: consumer.CachedInfo().NumPending, batch: batch,
	}, nil
}

// close deletes the consumer now. The server would delete it after a while anyway.
func (r *reader) close(ctx context.Context) {
	_ = r.stream.DeleteConsumer(ctx, r.consumer.CachedInfo().Name)
}

// read passes every letter up to the sequence last to take, until take fails.
func (r *reader) read(ctx context.Context, last uint64, take func(Kept) error) error {
	var failed error
	_, err := r.readUntil(ctx, last, func(k Kept) bool {
		failed = take(k)
		return failed == nil
	})
	return cmp.Or(failed, err)
}

// readUntil passes every letter up to the sequence last to take, until take returns false. end reports that there are
// none after the last one passed. It asks the stream's leader for that, since the replica that it reads may lag.
func (r *reader) readUntil(ctx context.Context, last uint64, take func(Kept) (more bool)) (end bool, err error) {
	for left := r.pending; ctx.Err() == nil; {
		if left == 0 {
			if end, err := r.atEnd(ctx, last); err != nil || end {
				return end, err
			}
			left = uint64(r.batch)
		}
		msgs, err := r.consumer.Fetch(int(min(left, uint64(r.batch))), jetstream.FetchMaxWait(lagWait))
		if err != nil {
			return false, fmt.Errorf("read the dead letters: %w", err)
		}
		got := uint64(0)
		for msg := range msgs.Messages() {
			got++
			k, ok := ReadKept(msg)
			if !ok {
				continue
			}
			if k.Seq > last {
				return true, nil
			}
			if r.next = k.Seq + 1; !take(k) {
				return false, nil
			}
		}
		if err := msgs.Error(); err != nil {
			return false, fmt.Errorf("read the dead letters: %w", err)
		}
		if left -= min(left, got); got == 0 {
			left = 0 // some were deleted meanwhile, or are still to come
		}
	}
	return false, fmt.Errorf("read the dead letters: %w", context.Cause(ctx))
}

// lagWait is how long readUntil waits for a replica that delivers nothing before it asks the leader what is left.
const lagWait = 250 * time.Millisecond

// atEnd reports whether the stream's leader holds no letter from the next one up to the sequence last.
func (r *reader) atEnd(ctx context.Context, last uint64) (bool, error) {
	m, err := stream.AskLeader(ctx, r.nc, Stream, fmt.Sprintf(`{"seq":%d,"next_by_subj":%q}`, r.next, r.subject))
	if err != nil {
		return false, fmt.Errorf("read the dead letters: %w", err)
	}
	return m == nil || m.Seq > last, nil
}

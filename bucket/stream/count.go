package stream

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Count returns about how many messages of a stream a consumer with the given start and filter would get. The replica
// that counts may lag. Count blocks for a round trip, or until ctx ends.
func Count(ctx context.Context, source jetstream.Stream, chosen jetstream.ConsumerConfig) (uint64, error) {
	chosen.AckPolicy, chosen.HeadersOnly, chosen.MemoryStorage = jetstream.AckNonePolicy, true, true
	chosen.Replicas, chosen.InactiveThreshold = 1, ReadIdle
	consumer, err := source.CreateConsumer(ctx, chosen)
	if err != nil {
		return 0, err
	}
	_ = source.DeleteConsumer(ctx, consumer.CachedInfo().Name) // else the server does, later
	return consumer.CachedInfo().NumPending, nil
}

package natstest

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Lagging simulates a new replica: a stream is read from a copy that is still being made. Only one stream can be read
// in this way, and only once.
type Lagging struct{ jetstream.JetStream }

// Stream implements jetstream.JetStream.
func (l Lagging) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	s, err := l.JetStream.Stream(ctx, name)
	return laggingStream{s, l.JetStream}, err
}

type laggingStream struct {
	jetstream.Stream
	js jetstream.JetStream
}

func (s laggingStream) OrderedConsumer(ctx context.Context, cfg jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	copied, err := s.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "COPY", Mirror: &jetstream.StreamSource{Name: s.CachedInfo().Config.Name}, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		return nil, err
	}
	return copied.OrderedConsumer(ctx, cfg)
}

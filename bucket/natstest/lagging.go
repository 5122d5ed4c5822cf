package natstest

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// LagReads makes direct reads of a stream answer like a replica that has no messages yet. Only streams and buckets that
// were opened before this call read directly.
func LagReads(t *testing.T, js jetstream.JetStream, name string) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	none := &nats.Msg{Header: nats.Header{"Status": {"404"}, "Description": {"Message Not Found"}}}
	for _, subject := range []string{"$JS.API.DIRECT.GET." + name, "$JS.API.DIRECT.GET." + name + ".>"} {
		if _, err := js.Conn().Subscribe(subject, func(m *nats.Msg) { _ = m.RespondMsg(none) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := js.Conn().Flush(); err != nil {
		t.Fatal(err)
	}
}

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

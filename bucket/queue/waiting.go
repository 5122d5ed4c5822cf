package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/stream"
	"weir/ingest"
)

// Waiting gives the header of every unfinished job of an api, or of one of its keys where key is not empty. It reads no
// bodies; its memory does not grow with the queue. An api without a queue has no jobs.
func Waiting(ctx context.Context, js jetstream.JetStream, api, key string, take func(key string, h nats.Header)) error {
	first, err := js.Stream(ctx, StreamName(api, 0))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	} else if err != nil {
		return fmt.Errorf("queue of api %s: %w", api, err)
	}
	partitions, err := strconv.Atoi(first.CachedInfo().Config.Metadata[metaPartitions])
	if err != nil || partitions < 1 {
		return fmt.Errorf("queue of api %s: stream %s does not say how many partitions there are", api, StreamName(api, 0))
	}
	for p := range partitions {
		token := "*"
		if key != "" {
			token = ingest.Token(key)
			if p != PartitionOf(key, partitions) {
				continue
			}
		}
		if err := waitingIn(ctx, js, StreamName(api, p), queueSubject(api, p, kindJob, token), take); err != nil {
			return err
		}
	}
	return nil
}

func waitingIn(ctx context.Context, js jetstream.JetStream, name, subject string, take func(key string, h nats.Header)) error {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	last, err := stream.LastOf(ctx, js.Conn(), name, subject)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	err = stream.ReadUntil(ctx, stream.Until{Conn: js.Conn(), Stream: s, Last: last, From: jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: true,
	}}, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) error {
		if _, token, ok := parseQueueSubject(msg.Subject()); ok {
			if key, err := ingest.ParseToken(token); err == nil {
				take(key, msg.Headers())
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

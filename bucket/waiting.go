package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

// Bounds of reading: headers of one request, and how long the server keeps a reader that has gone.
const (
	waitingBatch = 1000
	waitingIdle  = 30 * time.Second
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

func waitingIn(ctx context.Context, js jetstream.JetStream, stream, subject string, take func(key string, h nats.Header)) error {
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Description: "weir: somebody looks at the waiting jobs", FilterSubject: subject, AckPolicy: jetstream.AckNonePolicy,
		HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: waitingIdle,
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", stream, err)
	}
	defer func() { _ = js.DeleteConsumer(ctx, stream, consumer.CachedInfo().Name) }() // it would go by itself
	// What comes later may be read too; the rest is at most what was there.
	for left := consumer.CachedInfo().NumPending; left > 0; {
		msgs, err := consumer.FetchNoWait(int(min(left, waitingBatch)))
		if err != nil {
			return fmt.Errorf("read %s: %w", stream, err)
		}
		got := uint64(0)
		for msg := range msgs.Messages() {
			got++
			if _, token, ok := parseQueueSubject(msg.Subject()); ok {
				if key, err := ingest.ParseToken(token); err == nil {
					take(key, msg.Headers())
				}
			}
		}
		if err := cmp.Or(msgs.Error(), ctx.Err()); err != nil {
			return fmt.Errorf("read %s: %w", stream, err)
		}
		if got == 0 {
			return nil // the others have ended meanwhile
		}
		left -= min(left, got)
	}
	return nil
}

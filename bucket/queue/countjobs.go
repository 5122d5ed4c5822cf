package queue

import (
	"context"
	"fmt"

	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// CountJobs counts the unfinished jobs in a stream, as they are now, without opening its queue. api is empty where the
// stream is no queue. It reads no job and keeps nothing; it blocks for some round trips.
func CountJobs(ctx context.Context, js jetstream.JetStream, name string) (api string, jobs int, err error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return "", 0, fmt.Errorf("count the jobs in %s: %w", name, err)
	}
	if api = s.CachedInfo().Config.Metadata[metaAPI]; api == "" || s.CachedInfo().State.Msgs == 0 {
		return api, 0, nil
	}
	consumer, err := js.CreateConsumer(ctx, name, jetstream.ConsumerConfig{
		Description: "weir: somebody counts the waiting jobs", FilterSubject: queuePrefix + api + ".*." + kindJob + ".>",
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: stream.ReadIdle,
	})
	if err != nil {
		return "", 0, fmt.Errorf("count the jobs in %s: %w", name, err)
	}
	info := consumer.CachedInfo()
	_ = js.DeleteConsumer(ctx, name, info.Name) // it would go by itself
	return api, int(min(info.NumPending, 1<<31-1)), nil
}

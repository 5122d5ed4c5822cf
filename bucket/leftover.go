package bucket

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// CountJobs counts the unfinished jobs in a stream, as they are now, without opening its queue. api is empty where the
// stream is no queue. It reads no job and keeps nothing; it blocks for some round trips.
func CountJobs(ctx context.Context, js jetstream.JetStream, stream string) (api string, jobs int, err error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return "", 0, fmt.Errorf("count the jobs in %s: %w", stream, err)
	}
	if api = s.CachedInfo().Config.Metadata[metaAPI]; api == "" || s.CachedInfo().State.Msgs == 0 {
		return api, 0, nil
	}
	consumer, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Description: "weir: somebody counts the waiting jobs", FilterSubject: queuePrefix + api + ".*." + kindJob + ".>",
		AckPolicy: jetstream.AckNonePolicy, HeadersOnly: true, MemoryStorage: true, Replicas: 1, InactiveThreshold: upToIdle,
	})
	if err != nil {
		return "", 0, fmt.Errorf("count the jobs in %s: %w", stream, err)
	}
	info := consumer.CachedInfo()
	_ = js.DeleteConsumer(ctx, stream, info.Name) // it would go by itself
	return api, int(min(info.NumPending, 1<<31-1)), nil
}

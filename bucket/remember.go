package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

// maxRemembered bounds the ids that are read from one stream.
const maxRemembered = 1_000_000

// remembered is a message that a stream has.
type remembered struct {
	subject string
	id      string
	seq     uint64
	at      time.Time
}

// remember reads the ids of what a stream stored since a time and still has. A stream that was restored from a snapshot has
// its messages and does not know their ids: a second message with one of them would be taken for a new one.
func remember(ctx context.Context, js jetstream.JetStream, name string, since time.Time) ([]remembered, error) {
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	if stream.CachedInfo().State.Msgs == 0 || stream.CachedInfo().State.LastTime.Before(since) {
		return nil, nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since, HeadersOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	info, err := consumer.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	if info.NumPending+info.Delivered.Consumer == 0 {
		return nil, nil // deleted at the end
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(readAhead))
	if err != nil {
		return nil, fmt.Errorf("ids of %s: %w", name, err)
	}
	defer msgs.Stop()
	var found []remembered
	for len(found) < maxRemembered {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		if errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, nats.ErrTimeout) {
			continue // the ordered consumer sets itself up anew
		} else if err != nil {
			return nil, fmt.Errorf("ids of %s: %w", name, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("ids of %s: %w", name, err)
		}
		found = append(found, remembered{msg.Subject(), msg.Headers().Get(ingest.HeaderMsgID), meta.Sequence.Stream, meta.Timestamp})
		if meta.NumPending == 0 {
			break
		}
	}
	return found, nil
}

// Remember makes the queue know the ids of the jobs that wait in it, where its streams do not: after they were restored.
// It must be called before the intake starts.
func (q *Queue) Remember(ctx context.Context) error {
	now := time.Now()
	for _, p := range q.partitions {
		found, err := remember(ctx, q.js, p.name, now.Add(-q.dedupe.Reach(now)))
		if err != nil {
			return err
		}
		var waiting []Finished
		for _, m := range found {
			kind, token, ok := parseQueueSubject(m.subject)
			if !ok || kind != kindJob {
				continue
			}
			key, err := ingest.ParseToken(token)
			_, id, stored := strings.Cut(m.id, "/")
			if err == nil && stored {
				waiting = append(waiting, Finished{Key: key, DedupeID: id, Seq: m.seq, Accepted: m.at, waits: true})
			}
		}
		q.Recall(waiting)
	}
	return nil
}

// Remember makes the writer know the ids of what a stream stored since a time, where the stream does not: after it was
// restored. It must be called before Run.
func (w *Writer) Remember(ctx context.Context, js jetstream.JetStream, stream string, since time.Time) error {
	found, err := remember(ctx, js, stream, since)
	if err != nil {
		return err
	}
	if w.known == nil {
		w.known = map[string]uint64{}
	}
	for _, m := range found {
		if m.id != "" {
			w.known[m.id] = m.seq
		}
	}
	return nil
}

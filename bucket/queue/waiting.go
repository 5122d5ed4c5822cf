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

// CountJobs counts the unfinished jobs in a stream, as they are now, without opening its queue. api is empty where the
// stream is no queue. It reads no job and keeps nothing; it blocks for some round trips. The stream's leader counts, and it counts
// what is no job, since jobs may be of a million keys: what a consumer says is left to read is the word of a replica that may lag.
func CountJobs(ctx context.Context, js jetstream.JetStream, name string) (api string, jobs int, err error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return "", 0, fmt.Errorf("count the jobs in %s: %w", name, err)
	}
	if api = s.CachedInfo().Config.Metadata[metaAPI]; api == "" || s.CachedInfo().State.Msgs == 0 {
		return api, 0, nil
	}
	left := s.CachedInfo().State.Msgs
	for _, others := range []string{queuePrefix + api + ".*." + kindIntent + ".>", queuePrefix + api + ".*." + kindRetry + ".>", ownerPrefix + api + ".>"} {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(others))
		if err != nil {
			return "", 0, fmt.Errorf("count the jobs in %s: %w", name, err)
		}
		for _, n := range info.State.Subjects {
			left -= min(left, n)
		}
	}
	return api, int(min(left, 1<<31-1)), nil
}

// findAtOnce bounds the messages that one step of a search holds.
const findAtOnce = 512

// mostFound bounds what a search returns: one id stands once for each key.
const mostFound = 1000

// Find returns the partition's unfinished jobs with this id, of all keys, or of one: at most 1,000. Their bodies are not
// loaded. It reads the headers of every job that waits there, and blocks until it has, or ctx ends.
func (p *Partition) Find(ctx context.Context, job, key string) ([]Entry, error) {
	token := "*"
	if key != "" {
		token = ingest.Token(key)
	}
	consumer, err := p.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: true,
		FilterSubjects: []string{queueSubject(p.queue.api, p.number, kindJob, token)},
	})
	if err != nil {
		return nil, fmt.Errorf("search %s: %w", p.name, err)
	}
	var found []Entry
	for {
		batch, err := consumer.FetchNoWait(findAtOnce)
		if err != nil {
			return nil, fmt.Errorf("search %s: %w", p.name, err)
		}
		n := 0
		for msg := range batch.Messages() {
			n++
			meta, err := msg.Metadata()
			if err != nil || msg.Headers().Get(ingest.HeaderJobID) != job || len(found) >= mostFound {
				continue
			}
			if _, token, ok := parseQueueSubject(msg.Subject()); ok {
				if key, err := ingest.ParseToken(token); err == nil {
					found = append(found, Entry{Key: key, Seq: meta.Sequence.Stream, Header: msg.Headers(), Time: meta.Timestamp})
				}
			}
		}
		switch err := batch.Error(); {
		case ctx.Err() != nil:
			return nil, fmt.Errorf("search %s: %w", p.name, context.Cause(ctx))
		case err != nil && !errors.Is(err, jetstream.ErrNoMessages):
			return nil, fmt.Errorf("search %s: %w", p.name, err)
		case n == 0:
			return found, nil
		}
	}
}

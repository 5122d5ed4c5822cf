package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"weir/ingest"
)

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

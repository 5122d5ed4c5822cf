package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/queue"
)

// Follower is one who wants to know which jobs have ended: an intake, whoever owns its partitions. All fields are required.
type Follower struct {
	JetStream jetstream.JetStream
	Dedupe    *queue.Dedupe // how long a job's id is known
	// Tell is told of each job, in the order of their ends, and of some of them more than once.
	Tell func(api string, f queue.Finished)
	Log  *slog.Logger
}

// followRetry is when the ledger is followed again that could not be: nobody may have dispatched yet.
const followRetry = 2 * time.Second

// Run reads the ledger as far back as ids are known and then follows it, until ctx ends. What it does not see in time only costs a
// receipt its word that the job is known: the owner of the partition does not call it again.
func (f *Follower) Run(ctx context.Context) error {
	since := f.since(time.Now())
	for ctx.Err() == nil {
		begun := time.Now()
		err := f.follow(ctx, since)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			f.Log.Warn("the ledger cannot be followed; trying again", "err", err)
			since = f.since(begun)
		}
		select {
		case <-time.After(followRetry):
		case <-ctx.Done():
		}
	}
	return nil
}

func (f *Follower) follow(ctx context.Context, since time.Time) error {
	stream, err := f.JetStream.Stream(ctx, CallsStream)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
	})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	msgs, err := consumer.Messages(jetstream.PullMaxMessages(ledgerBatch), jetstream.PullHeartbeat(time.Second))
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer msgs.Stop()
	defer context.AfterFunc(ctx, msgs.Stop)() // Next waits for a stream that is gone whatever its context says
	for {
		msg, err := msgs.Next(jetstream.NextContext(ctx))
		switch {
		case err == nil:
		case ctx.Err() == nil && (errors.Is(err, jetstream.ErrNoHeartbeat) || errors.Is(err, nats.ErrTimeout)):
			continue // it sets itself up anew
		default:
			return fmt.Errorf("ledger: %w", err)
		}
		var c Record
		if json.Unmarshal(msg.Data(), &c) == nil && c.Final {
			f.Tell(c.API, c.finished())
		}
	}
}

func (f *Follower) since(now time.Time) time.Time { return now.Add(-f.Dedupe.Reach(now)) }

// finished is what a final record says of its job's id.
func (c *Record) finished() queue.Finished {
	return queue.Finished{Key: c.Key, DedupeID: c.Dedupe, Seq: c.Seq, Accepted: c.Accepted}
}

package ledger

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"weir/bucket/queue"
	"weir/bucket/stream"
)

// Follower is one who wants to know which jobs have ended: an intake, whoever owns its partitions. All fields are required.
type Follower struct {
	JetStream jetstream.JetStream
	Dedupe    *queue.Dedupe // how long a job's id is known
	// Tell is told of each job, in the order of their ends, and of some of them more than once. It is called by Run's goroutine.
	Tell func(api string, f queue.Finished)
	Log  *slog.Logger
}

// followRetry is when the ledger is followed again that could not be: nobody may have dispatched yet.
const followRetry = 2 * time.Second

// Run reads the ledger as far back as ids are known and then follows it. It blocks until ctx ends. What it does not see in time only
// costs a receipt its word that the job is known: the owner of the partition does not call it again.
func (f *Follower) Run(ctx context.Context) error {
	p := portion{stream: CallsStream, since: f.since(time.Now())}
	for ctx.Err() == nil {
		begun := time.Now()
		err := p.follow(ctx, f.JetStream, f.take)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			f.Log.Warn("the ledger cannot be followed; trying again", "err", err)
			p.since = f.since(begun)
		}
		stream.Sleep(ctx, followRetry)
	}
	return nil
}

func (f *Follower) take(msg jetstream.Msg) error {
	if c, err := parse(msg.Subject(), msg.Data()); err == nil && c.Final {
		f.Tell(c.API, c.finished())
	}
	return nil // what nobody can read tells nothing
}

func (f *Follower) since(now time.Time) time.Time { return now.Add(-f.Dedupe.Reach(now)) }

// finished is what a final record says of its job's id.
func (c *Record) finished() queue.Finished {
	return queue.Finished{Key: c.Key, DedupeID: c.Dedupe, Seq: c.Seq, Accepted: c.Accepted}
}

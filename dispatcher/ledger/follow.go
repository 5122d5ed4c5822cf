package ledger

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"weir/bucket/queue"
	"weir/bucket/stream"

	"github.com/nats-io/nats.go/jetstream"
)

// Follower tells an intake which jobs have ended, whichever replica owns their partitions. All fields are required.
type Follower struct {
	JetStream jetstream.JetStream
	Dedupe    *queue.Dedupe // how long a job's id is known
	// Tell is called for each job that has ended, in the order of the ends. It may be called more than once for a job.
	// Run's goroutine calls it.
	Tell func(api string, f queue.Finished)
	Log  *slog.Logger
}

// followRetry is the delay before the ledger is followed again after a failure. The ledger may not exist yet.
const followRetry = 2 * time.Second

// Run reads the ledger as far back as ids are known, and then follows it. It blocks until ctx ends. If it sees a job's
// end late, the only harm is a receipt that does not say that the job is known: the partition's owner still does not
// call the job again.
func (f *Follower) Run(ctx context.Context) error {
	p := portion{stream: CallsStream, since: f.since(time.Now())}
	for ctx.Err() == nil {
		begun := time.Now()
		err := p.follow(ctx, f.JetStream, f.take)
		switch {
		case ctx.Err() != nil:
			return nil
		case !errors.Is(err, jetstream.ErrStreamNotFound):
			f.Log.Warn("cannot follow the ledger; trying again", "err", err)
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
	return nil // an unreadable record tells nothing
}

func (f *Follower) since(now time.Time) time.Time { return now.Add(-f.Dedupe.Reach(now)) }

// finished returns what a final record says about its job's id.
func (c *Record) finished() queue.Finished {
	return queue.Finished{Key: c.Key, DedupeID: c.Dedupe, Seq: c.Seq, Accepted: c.Accepted}
}
